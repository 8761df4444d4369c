#!/usr/bin/env bash
# What every script begins with, whoever began it: no signal ignored or blocked, no input, one locale, no variable that means something
# to what it starts; and what lib.sh has for paths with a blank in them and for long ones.
# usage: BIN=build/release/bin DIR=build/anew-test SLOW_SYNC=build/release/tests/system/slow_sync.so tests/system/anew.sh [WORD...]
. "$(dirname "$0")/lib.sh"

# Without 32 and 33, which belong to the C library: posix_spawn(3), and so make, leaves them ignored.
mask() { local m; m=$(sh -c 'sed -n "s/^'"$1"':\t//p" /proc/self/status'); m=$((16#$m & ~(3 << 31))); [ $m = 0 ] || printf '%x' $m; }
if [ "${1:-}" = within ]; then # begun by the other one
	echo "$(mask SigIgn) $(mask SigBlk) ${ETCDCTL_ENDPOINTS-gone} $2"
	exit
fi
is "no signal is ignored" "$(mask SigIgn)" ""
is "none is blocked" "$(mask SigBlk)" ""
is "nothing is read" "$(timeout 5 cat)" ""
is "what is made is for others to read" "$(umask)" 0022
is "a locale that does not sort" "$(printf '%s\n' a B _ b A | sort | tr '\n' ' ')$(locale decimal_point)" "A B _ a b ."
is "variables that mean something are gone" "$(env | grep -E '^(LANG|LC_[^A]|ETCD_|ETCDCTL_[^A]|TENURE_|XDG_|DBUS_|NOTIFY_|LISTEN_|MAKE|PREFIX|DESTDIR|PYTHONPATH|[A-Z]*_DIRECTORY)')" ""
is "a script that a script begins, with SIGHUP ignored and a variable set" "$(trap '' HUP; ETCDCTL_ENDPOINTS=x DIR="$DIR/within" "$0" within "two  words")" "  gone two  words"
ends_by_hup() { (sh -c 'kill -HUP $$; echo goes on'); }
is "SIGHUP ends what is started" "$(ends_by_hup 2>/dev/null)" ""

wants_plain for-others
is "a path with nothing odd in it, and short" "$([[ $PLAIN = *[!A-Za-z0-9/._+-]* ]] || echo ${#PLAIN} | awk '{ print $1 <= 80 }')" 1
/usr/bin/python3 -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$PLAIN/a-socket-that-has-a-name" && ok "a socket there" || not_ok "a socket there"
if [ "$(id -u)" = 0 ]; then
	setpriv --reuid nobody --clear-groups test -S "$PLAIN/a-socket-that-has-a-name" && ok "which others reach" || not_ok "which others reach" "$(stat -c '%A %n' "$PLAIN")"
fi
preloaded "$SLOW_SYNC"
is "a library is preloaded" "$(LD_PRELOAD=$PRELOADED sh -c 'grep -c slow_sync.so /proc/self/maps | awk "{ print (\$1 > 0) }"' 2>&1)" 1
finish
