# $1 is 0 where the package goes for good.
[ "$1" -ne 0 ] || systemctl --no-reload disable --now emberdb.service >/dev/null 2>&1 || :
exit 0
