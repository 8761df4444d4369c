# For bench.sh: processes that end with the script, and waiting with a deadline. Source it. DIR is an own, empty folder.
# shellcheck shell=bash
set -u
BENCH=$(cd "$(dirname "${BASH_SOURCE[0]}")" >/dev/null && pwd)
# Whatever started it, with which signals ignored and which locale: the script begins once more, with none of that.
[ "${ANEW:-}" = $$ ] || ANEW=$$ exec "$BENCH/../../.ci/anew" "$BASH" "$0" "$@"
export ETCDCTL_API=3
# Debian's programs, which .ci/deps installs, and no wrappers before them: one of those takes ten times as long as python3 itself.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
PIDS=()
rm -rf "$DIR" && mkdir -p "$DIR" || {
	echo "$0: $DIR cannot be made anew by $(id -un); an earlier run, as another user perhaps, has left it"
	exit 1
}

# A number that has been waited for may be another one's process by now: there are 32,768 of them.
is_ours() { # PID
	local stat parent
	{ read -r stat <"/proc/$1/stat"; } 2>/dev/null || return 1
	read -r _ parent _ <<<"${stat##*) }"
	[ "$parent" = $$ ]
}
cleanup() {
	local p
	for p in "${PIDS[@]:-}"; do [ -z "$p" ] || ! is_ours "$p" || kill -9 "$p" 2>/dev/null; done
	wait 2>/dev/null
}
trap cleanup EXIT

# truly FILTER...: what jq makes of its input is true, and is there: `jq -e` of nothing at all succeeds (1.6).
truly() { [ "$(jq "$@" | tail -n 1)" = true ]; }

# until_ok SECONDS COMMAND...: until it succeeds; waits for an event, not for a time.
# It rests for as long as the command takes, up to 0.2 s: what is waited for needs the processor, too.
until_ok() {
	local asked now rest end=$((${EPOCHREALTIME/[.,]/} + $1 * 1000000))
	shift
	while :; do
		asked=${EPOCHREALTIME/[.,]/}
		"$@" >/dev/null 2>&1 && return
		now=${EPOCHREALTIME/[.,]/}
		[ "$now" -lt "$end" ] || return 1
		rest=$((now - asked < 20000 ? 20000 : now - asked > 200000 ? 200000 : now - asked))
		sleep "$(printf '0.%06d' $rest)"
	done
}

# Ports of loopback that are free, and this script's while it lives.
free_ports() { /usr/bin/python3 "$BENCH/../harness/ports.py" "$1" $$ || kill $$; }

# start NAME COMMAND...: in the background, its output in $DIR/NAME.log; the pid is in $PID.
start() {
	local name=$1
	shift
	"$@" >>"$DIR/$name.log" 2>&1 &
	PID=$!
	PIDS+=("$PID")
}
