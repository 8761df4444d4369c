#!/usr/bin/env bash
# What must run once never runs twice: random faults at random moments on a real host whose clock is not the others', again
# and again; each time what was bound to its place had stopped before the others were told that the place is free.
# usage: BIN=build/release/bin DIR=build/fence-test tests/system/fence.sh RUNS [SEED]   (root); a run takes about 4 s
RUNS=${1:-15} SEED=${2:-$(date +%s)}
export SKEW=1 # every host has a CLOCK_BOOTTIME of its own
. "$(dirname "$0")/hosts_lib.sh"
RANDOM=$SEED
closest=999999 longest=0 twice=0 n_frozen=0

# Any moment between two renewals.
some_moment() { read -rt "0.$(printf %03d $((RANDOM % 1000)))" <>"$DIR/nothing"; }
mkfifo "$DIR/nothing"

# strike KIND: from now on h4 cannot renew.
KINDS=("the cable is pulled" "the network drops all" "the agent hangs, the network drops all" "the agent dies, the cable is pulled" "the agent does not come back" "every process is frozen"
	"PID 1 stands still, the cable is pulled" "PID 1 executes itself anew, the cable is pulled")
strike() {
	case $1 in
	"the cable is pulled") rig cut h4 ;;
	"the network drops all") rig cut h4 silent ;;
	"the agent hangs, the network drops all") on h4 systemctl kill -s STOP tenured; rig cut h4 silent ;;
	"the agent dies, the cable is pulled") on h4 systemctl kill -s KILL tenured; rig cut h4 ;;
	"the agent does not come back") on h4 sh -c 'echo nonsense >>/etc/tenure/tenured.conf; systemctl kill -s KILL tenured' ;;
	"every process is frozen") rig freeze h4 ;;
	"PID 1 stands still, the cable is pulled") kill -STOP "$(rig_init h4)"; rig cut h4 ;;
	# SIGTERM says daemon-reexec to it, systemd(1); some moment later, for it to fall anywhere between the cut and the loss.
	"PID 1 executes itself anew, the cable is pulled") rig cut h4; some_moment; kill -TERM "$(rig_init h4)" ;;
	esac
}

# When tenure-held.target was down after the thaw at $t.
down_at() { on h4 journalctl -S "@${t:0:-6}.${t: -6}" -u tenured -o json --no-pager | jq -r 'select(.MESSAGE | test("is down after")) | .__REALTIME_TIMESTAMP' | head -n 1; }
has_stopped() { [ -n "$(down_at)" ]; }

for ((run = 1; run <= RUNS; run++)); do
	kind=${KINDS[RANDOM % ${#KINDS[@]}]}
	some_moment
	n=$(lines); strike "$kind"
	until_ok 10 has_left "$n" || { not_ok "run $run of seed $SEED: $kind" "nobody is told"; break; }
	read -r left _ <<<"$(told_left "$n")"
	if [ "$kind" = "every process is frozen" ]; then
		# Nothing can stop before it goes on: what counts is for how long it runs then.
		n_frozen=$((n_frozen + 1)); some_moment; t=$(now_us); rig thaw h4
		until_ok 5 has_stopped
		# It may be up again by now, with another place: then it was down at the latest when the journal says so.
		stopped=$(down_at) ran=$(last_run); ran=${ran:-$t}; [ "$ran" -lt "${stopped:-0}" ] || ran=${stopped:-0}
		ms=$(((ran - t) / 1000)); [ $ms -ge 0 ] || ms=0
		[ "$ms" -gt "$longest" ] && longest=$ms
		if [ -z "$stopped" ] || [ "$ms" -gt 300 ]; then twice=$((twice + 1)); not_ok "run $run of seed $SEED: $kind" "down at '$stopped'; it ran for $ms ms after the thaw"; fi
	else
		ran=$(last_run); ran=${ran:-$left}; ms=$(((left - ran) / 1000))
		[ "$ms" -lt "$closest" ] && closest=$ms
		if [ "$ran" -ge "$left" ]; then twice=$((twice + 1)); not_ok "run $run of seed $SEED: $kind" "it ran twice, for $((-ms)) ms"; fi
	fi
	rig heal
	kill -CONT "$(rig_init h4)"
	on h4 sed -i /nonsense/d /etc/tenure/tenured.conf
	back "run $run of seed $SEED: $kind"
	[ $((run % 10)) -ne 0 ] || echo "... $run of $RUNS runs, closest $closest ms, at most $longest ms after a thaw" >&2
done
for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
is "$RUNS runs of seed $SEED: never on two hosts; stopped $closest ms before the others were told, or more; $n_frozen times frozen, then running for $longest ms at the most" "$twice" 0
finish
