systemctl daemon-reload >/dev/null 2>&1 || :
[ "$1" -lt 1 ] || systemctl try-restart emberdb.service >/dev/null 2>&1 || :
exit 0
