getent group emberdb >/dev/null || groupadd -r emberdb
getent passwd emberdb >/dev/null || useradd -r -g emberdb -d /var/lib/emberdb -s /sbin/nologin -c EmberDB emberdb
exit 0
