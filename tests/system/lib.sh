# Shared by the system tests: processes that end with the test, waiting with a deadline, and counting. Source it.
# shellcheck shell=bash
# BIN is the programs' directory; DIR an own, empty one.
set -u
SYSTEM=$(cd "$(dirname "${BASH_SOURCE[0]}")" >/dev/null && pwd) # a test may go elsewhere
# Whatever started it, with which signals ignored and which locale: the script begins once more, with none of that.
[ "${ANEW:-}" = $$ ] || ANEW=$$ exec "$SYSTEM/../../.ci/anew" "$BASH" "$0" "$@"
export ETCDCTL_API=3
# Debian's programs, which .ci/deps installs, and no wrappers before them: one of those takes ten times as long as python3 itself.
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
PASSED=0 FAILED=0 SKIPPED=0 PIDS=()
rm -rf "$DIR" && mkdir -p "$DIR" || {
	echo "not ok $0: $DIR cannot be made anew by $(id -un); an earlier run, as another user perhaps, has left it"
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

ok() { PASSED=$((PASSED + 1)); echo "ok $1"; }
not_ok() { FAILED=$((FAILED + 1)); echo "not ok $1${2:+: $2}"; }
skip() { SKIPPED=$((SKIPPED + 1)); echo "skipped $1: $2"; }
# is WHAT GOT WANTED
is() { if [ "$2" = "$3" ]; then ok "$1"; else not_ok "$1" "got '$2', wanted '$3'"; fi; }
# has WHAT GOT PATTERN (grep -E)
has() { if grep -qE -- "$3" <<<"$2"; then ok "$1"; else not_ok "$1" "got '$2', wanted /$3/"; fi; }

# truly FILTER...: what jq makes of its input is true, and is there: `jq -e` of nothing at all succeeds (1.6).
truly() { [ "$(jq "$@" | tail -n 1)" = true ]; }

# until_ok SECONDS COMMAND...: until it succeeds; waits for an event, not for a time.
# It rests for as long as the command takes, up to 0.2 s: what is waited for needs the processor, too.
# Programs with sanitizers take their time, first of all to begin.
case ${BIN:-} in *asan* | *tsan*) SLOW=4 ;; *) SLOW=1 ;; esac
until_ok() {
	local asked now rest end=$((${EPOCHREALTIME/[.,]/} + $1 * SLOW * 1000000))
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

# Ports of loopback that are free, and this test's while it lives.
free_ports() { /usr/bin/python3 "$SYSTEM/../harness/ports.py" "$1" $$ || kill $$; }

# start NAME COMMAND...: in the background, its output in $DIR/NAME.log; the pid is in $PID.
start() {
	local name=$1
	shift
	"$@" >>"$DIR/$name.log" 2>&1 &
	PID=$!
	PIDS+=("$PID")
}

# start_replica NAME CLIENT-PORT PEER-PORT OPTION...: one of a core on 127.0.0.1, its data in $DIR/NAME; alone, or with the others that
# --initial-cluster names.
start_replica() {
	local name=$1 client=http://127.0.0.1:$2 peer=http://127.0.0.1:$3
	shift 3
	start "$name" "$BIN/tenure-core" --name "$name" --data-dir "$DIR/$name" --listen-client-urls "$client" --listen-peer-urls "$peer" "$@"
}

finish() {
	echo "$PASSED passed, $FAILED failed, $SKIPPED skipped"
	[ "$FAILED" -eq 0 ]
}
