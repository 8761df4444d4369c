#!/bin/sh
# Run on a host: all that is there, one thing a line, but for what any installation, systemd and a profiler leave (perf keeps the
# programs that it saw in ~/.debug); of settings and users also what is in them. Below /usr only what has the packages' name.
find /etc /opt /srv /root /home /var /run -xdev \( -path /var/cache -o -path /var/log -o -path /var/tmp -o -path /var/lib/apt \
	-o -path /var/lib/dpkg -o -path /var/lib/PackageKit -o -path /run/systemd -o -path /run/log -o -path /run/udev -o -path /run/user \
	-o -path /root/.debug \) -prune -o -printf '%p %y %m %U:%G\n'
find /usr -name '*tenure*' -printf '%p %y %m %U:%G\n'
find /etc -type f ! -name '*-' ! -name ld.so.cache -exec sha256sum {} +
find /var/lib/dpkg/info -name '*tenure*'
dpkg-query -W -f '${Package} ${Status}\n' '*tenure*' 2>/dev/null
find /run/systemd -name '*tenure*'
find /tmp /var/tmp -name 'systemd-private-*tenure*'
systemctl list-units --all --no-legend --plain '*tenure*'
systemctl list-unit-files --no-legend '*tenure*'
busctl list --acquired --activatable --no-legend | grep tenure
journalctl --list-catalog 2>/dev/null | grep -i tenure
ps -eo args | grep '[/]tenure[a-z-]*'
getent passwd | grep tenure
getent group | grep tenure
exit 0
