# $1 is 1 at the first installation. Later these belong to the service's user, who could have put a link there.
if [ "$1" -eq 1 ]; then
    # The server itself writes there, on CONFIG REWRITE and ACL SAVE.
    chown emberdb:emberdb /etc/emberdb
    chmod 2770 /etc/emberdb
fi
systemctl daemon-reload >/dev/null 2>&1 || :
# Whether it is started is up to the system's presets.
[ "$1" -ne 1 ] || systemctl preset emberdb.service >/dev/null 2>&1 || :
exit 0
