#!/usr/bin/env bash
# What must run once never runs twice: faults drawn at random, at random moments, on a real host whose clock is not the others',
# again and again. Each run draws how the place is lost and what is in the way of the fence meanwhile. Of each kind of unit that is
# hard to stop one is bound to the place (fence_kinds.sh): none of them runs when the others are notified that the place is free, and
# all are up again afterwards.
# usage: BIN=build/release/bin DIR=build/fence-test TTL=2s tests/system/fence.sh RUNS [SEED]   (root); a run takes about twice
# the TTL and 3 s. LOSS="...", WAY="...": only that one, as below.
RUNS=${1:-15} SEED=${2:-$(date +%s)} ONLY_LOSS=${LOSS:-} ONLY_WAY=${WAY:-}
export SKEW=1 # every host has a CLOCK_BOOTTIME of its own
. "$(dirname "$0")/hosts_lib.sh"
. "$(dirname "$0")/fence_kinds.sh"
RANDOM=$SEED
PATIENCE=$((TTL_MS / 1000 + 15))
STOOD_STILL_MS=300 # how long something may run on after it stood still
TAKEN_MS=1200 # ... or after its place was taken away by hand: the agent hears of it from its own replica, which may be behind; less
              # than slow.service takes to stop in order

# Any moment between two renewals.
some_moment() { pass_ms $(((RANDOM * 32768 + RANDOM) % (TTL_MS / 2))); }
pass_ms() { read -rt "$(($1 / 1000)).$(printf %03d $(($1 % 1000)))" <>"$DIR/nothing"; }
mkfifo "$DIR/nothing"
h4_root() { echo "/proc/$(rig_init h4)/root"; }
agent_pid() { local p; { read -r p <"$CG/h4/payload/system.slice/tenured.service/cgroup.procs"; } 2>/dev/null; echo "$p"; }
signal_agent() { kill "-$1" "$(agent_pid)" 2>/dev/null; } # without asking PID 1
in_h4() { start "$1" env RIG="$NAME" "$RIG" exec h4 "${@:2}"; }

# ---- how the place is lost (who asks a PID 1 that executes itself anew gets no answer, and asks again)
LOSSES=("the cable is pulled" "the network drops all" "no endpoint answers" "the agent hangs, the network drops all" "the agent dies, the cable is pulled"
	"the agent does not come back" "every process is frozen" "the agent restarts, the cable is pulled" "the node's key is deleted" "tenurectl leave" "the agent is stopped"
	"the agent is stopped, the cable is pulled" "tenurectl leave, the cable is pulled")
lose() {
	ASKED=
	case $1 in
	"the cable is pulled") rig cut h4 ;;
	"the network drops all") rig cut h4 silent ;;
	"no endpoint answers") rig cut h4 h1; rig cut h4 h2; rig cut h4 h3 ;;
	"the agent hangs, the network drops all") signal_agent STOP; rig cut h4 silent ;;
	"the agent dies, the cable is pulled") signal_agent KILL; rig cut h4 ;;
	"the agent does not come back") echo nonsense >>"$(h4_root)/etc/tenure/tenured.conf"; signal_agent KILL ;;
	"every process is frozen") rig freeze h4 ;;
	"the agent restarts, the cable is pulled") in_h4 asked sh -c "until systemctl restart tenured; do sleep 0.1; done"; ASKED=$PID; rig cut h4 ;;
	"the node's key is deleted") etcd del /tenure/default/nodes/h4 >/dev/null ;;
	"tenurectl leave") in_h4 asked tenurectl leave; ASKED=$PID ;;
	"the agent is stopped") in_h4 asked sh -c "until systemctl stop tenured; do sleep 0.1; done"; ASKED=$PID ;;
	"the agent is stopped, the cable is pulled") in_h4 asked sh -c "until systemctl stop tenured; do sleep 0.1; done"; ASKED=$PID; some_moment; rig cut h4 ;;
	"tenurectl leave, the cable is pulled") in_h4 asked tenurectl leave; ASKED=$PID; some_moment; rig cut h4 ;;
	esac
}
win_back() {
	rig heal
	[ -z "$ASKED" ] || wait "$ASKED"
	sed -i /nonsense/d "$(h4_root)/etc/tenure/tenured.conf"
	case $1 in
	"the agent is stopped"*) until_ok 10 on h4 systemctl start --no-block tenured ;;
	"tenurectl leave"*) until_ok 10 on h4 tenurectl join ;;
	esac
}

# ---- what is in the way meanwhile
WAYS=("nothing" "PID 1 stands still" "PID 1 executes itself anew" "PID 1 stands still, then executes itself anew" "a slow generator under daemon-reload" "the journal hangs" "the bus is stopped" "the bus is restarted"
	"starts in a loop" "the clock is set")
hinder() {
	case $1 in
	"nothing") ;;
	"PID 1 stands still") kill -STOP "$(rig_init h4)" ;;
	# SIGTERM says daemon-reexec to it, systemd(1).
	"PID 1 executes itself anew") kill -TERM "$(rig_init h4)" ;;
	"PID 1 stands still, then executes itself anew") kill -STOP "$(rig_init h4)"; kill -TERM "$(rig_init h4)" ;;
	"a slow generator under daemon-reload") : >"$(h4_root)/run/slow"; in_h4 way systemctl daemon-reload; BUSY=$PID; until_ok 5 test -e "$(h4_root)/run/slow.now" ;;
	"the journal hangs") kill -STOP "$(cat "$CG/h4/payload/system.slice/systemd-journald.service/cgroup.procs")"; : >"$DIR/way.log"; in_h4 way /usr/bin/python3 /usr/bin/fill_journal; BUSY=$PID; until_ok 10 grep -q full "$DIR/way.log" ;;
	"the bus is stopped") on h4 systemctl stop dbus.socket dbus.service ;;
	"the bus is restarted") in_h4 way systemctl restart dbus.service; BUSY=$PID ;;
	"starts in a loop") : >"$(h4_root)/run/go-on"; in_h4 way sh -c 'while [ -e /run/go-on ]; do systemctl start --no-block slow always only-one each@b mounted; systemctl restart --no-block each@a; systemctl start --no-block tenure-held.target; sleep 0.05; done'; BUSY=$PID ;;
	"the clock is set") CLOCK=$((CLOCK == 0 ? RANDOM * 100 - 1600000 : 0)); echo "$CLOCK" >"$(h4_root)/run/wrong_clock" ;;
	esac
}
clear_way() {
	case $1 in
	"PID 1 stands still"*) kill -CONT "$(rig_init h4)" ;;
	"a slow generator under daemon-reload") rm -f "$(h4_root)/run/slow" "$(h4_root)/run/slow.now"; wait "$BUSY" ;;
	"the journal hangs") kill "$BUSY"; wait "$BUSY" 2>/dev/null; kill -CONT "$(cat "$CG/h4/payload/system.slice/systemd-journald.service/cgroup.procs")" ;;
	"the bus is stopped") on h4 systemctl start dbus.socket dbus.service ;;
	"the bus is restarted") wait "$BUSY" ;;
	"starts in a loop") rm -f "$(h4_root)/run/go-on"; wait "$BUSY" ;;
	esac
}
CLOCK=0

# What cannot be done, or comes to nothing: who leaves waits until PID 1 says that all is down, by the bus; and of a host that is
# frozen nobody does anything.
fits() { # LOSS WAY
	case $2 in
	"PID 1 stands still"* | "a slow generator under daemon-reload") case $1 in *", the cable is pulled") ;; "the agent is stopped" | "tenurectl leave" | "every process is frozen") return 1 ;; esac ;;
	"PID 1 executes itself anew") [ "$1" != "every process is frozen" ] || return 1 ;;
	"the bus is stopped" | "the bus is restarted") case $1 in "tenurectl leave"* | "every process is frozen") return 1 ;; esac ;;
	esac
}
draw() {
	while :; do
		LOSS=${ONLY_LOSS:-${LOSSES[RANDOM % ${#LOSSES[@]}]}} WAY=${ONLY_WAY:-${WAYS[RANDOM % ${#WAYS[@]}]}}
		! fits "$LOSS" "$WAY" || return 0
	done
}
# What counts is how long something runs on, where nobody could have stopped it before: as long as h4 stood still, or a place that
# somebody took away by hand.
runs_on() { case $1 in "every process is frozen" | "the node's key is deleted") ;; *) return 1 ;; esac; }

# ---- a run
declare -A COUNT CLOSEST
closest=999999 longest=0 twice=0 n_after=0 n_mounted=0 n_done=0 no_return=0 no_return=0
note() { # KEY MS: the smallest of each
	COUNT[$1]=$((${COUNT[$1]:-0} + 1))
	[ "${CLOSEST[$1]:-999999}" -le "$2" ] || CLOSEST[$1]=$2
}
fails() { twice=$((twice + 1)); not_ok "run $run of seed $SEED, TTL $TTL: $LOSS; $WAY" "$1"; rig journal h4 -S "@$((T0 / 1000000 - 1))" -o short-precise --no-pager >"$DIR/failure.$run" 2>/dev/null; }
is_mounted() { grep -q ' /srv/held ' "/proc/$(rig_init h4)/mountinfo"; }
recovers() {
	await 30 kinds_up && until_ok 30 all_there && return
	fails "it does not come back: $(kinds_up) is missing; target $(prop h4 tenure-held.target ActiveState)"; return 1
}
# As until_ok, but seldom: several of these tests run beside each other for an hour.
await() { # SECONDS COMMAND...
	local end=$((SECONDS + $1)); shift
	until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $end ] || return 1; read -rt 0.05 <>"$DIR/nothing"; done
	return 0
}
judge() {
	local name us worst=999999999 who=
	while read -r name us; do
		[ "$us" -ge "$worst" ] || { worst=$us who=$name; }
	done < <("$SAYS" --judge "$(says_dir)" "$1" "$2")
	[ -n "$who" ] || { fails "nothing was bound"; return; }
	ms=$((worst / 1000))
	[ $ms -ge $closest ] || closest=$ms
	note "$LOSS" $ms; note "$WAY" $ms; note "$LOSS; $WAY" $ms
	[ "$worst" -gt 0 ] || fails "$who ran twice, for $((-ms)) ms"
}
one_run() {
	local n left t ms most until
	T0=$(now_us); some_moment
	n=$(lines)
	if [ $((RANDOM % 2)) = 0 ]; then hinder "$WAY"; some_moment; lose "$LOSS"; else lose "$LOSS"; [ "$LOSS" = "every process is frozen" ] || some_moment; hinder "$WAY"; fi
	await $PATIENCE has_left "$n" || { fails "nobody is notified"; clear_way "$WAY"; win_back "$LOSS"; return 1; }
	read -r left _ <<<"$(reported_left "$n")"
	if runs_on "$LOSS"; then
		t=$left most=$TAKEN_MS
		# What is to be seen is over once it has stopped, or by the time that it must have.
		[ "$LOSS" != "every process is frozen" ] || { some_moment; t=$(now_us); most=$STOOD_STILL_MS; thaw h4; }
		pass_ms $((most + 200))
		ms=$(($("$SAYS" --after "$(says_dir)" "$t") / 1000)); n_after=$((n_after + 1))
		[ $ms -le $longest ] || longest=$ms
		note "$LOSS" -$ms; note "$LOSS; $WAY" -$ms
		[ $ms -le $most ] || fails "it ran on for $ms ms"
	else
		! is_mounted || n_mounted=$((n_mounted + 1))
		# It has lost what it was to stop, and starts again whatever has ended.
		[ "$WAY" != "PID 1 stands still, then executes itself anew" ] || { clear_way "$WAY"; pass_ms 500; }
		until=$(now_us); judge "$left" "$until"
	fi
	echo "$run ${ms:-} $LOSS; $WAY" >>"$DIR/runs.log"
	clear_way "$WAY"; win_back "$LOSS"
	recovers
}

# What is gone with a boot.
prepare() {
	on h4 sh -c 'mkdir -p -m 1777 /run/says; mkdir -p /run/systemd/system-generators /run/systemd/system/tenured.service.d; echo 0 >/run/wrong_clock
	printf "#!/bin/sh\n[ ! -e /run/slow ] || : >/run/slow.now\nn=0; while [ -e /run/slow ] && [ \$n -lt 1000 ]; do sleep 0.03; n=\$((n + 1)); done\n" >/run/systemd/system-generators/slow; chmod 755 /run/systemd/system-generators/slow
	printf "[Service]\nEnvironment=LD_PRELOAD=/usr/lib/wrong_clock.so WRONG_CLOCK=/run/wrong_clock\n" >/run/systemd/system/tenured.service.d/clock.conf
	systemctl daemon-reload; systemctl stop tenured; systemctl start tenured'
}
cp "$(dirname "$0")/../harness/fill_journal.py" "$(h4_root)/usr/bin/fill_journal"
cp "$(dirname "$BIN")/tests/system/wrong_clock.so" "$(h4_root)/usr/lib/wrong_clock.so"
run=0 LOSS=start WAY=nothing T0=$(now_us)
prepare; kinds_install && recovers || { finish; exit 1; }

for ((run = 1; run <= RUNS; run++)); do
	draw
	# A host that does not come back is reported and booted, so that the next runs count.
	if ! one_run; then
		[ $((no_return += 1)) -lt 10 ] || break
		rig kill h4; rig start h4 >>"$DIR/up.log" 2>&1; prepare; CLOCK=0; recovers || break
	fi
	n_done=$run
	[ $((run % 10)) -ne 0 ] || echo "... $run of $RUNS runs at TTL $TTL, $twice failed, closest $closest ms, at most $longest ms after it stood still" >&2
done
for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
for k in "${!COUNT[@]}"; do echo "${CLOSEST[$k]} ms, ${COUNT[$k]} times: $k"; done | sort -t: -k2 >"$DIR/table"
is "$n_done runs of seed $SEED at TTL $TTL, ${#KINDS[@]} kinds of units: all stopped $closest ms before the others were notified, or more; $n_after times after it stood still, running on for $longest ms at the most; $n_mounted times a mount was left; all up again" "$n_done $twice" "$RUNS 0"
finish
