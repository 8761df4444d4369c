#!/usr/bin/env bash
# The last metre on real systemd hosts: whatever systemd, or who uses it, is doing, what is bound to tenure-held.target runs no
# more when the others hear that its host's place is free, nothing joins before it is down, and the fence works afterwards.
# usage: BIN=build/release/bin DIR=build/lastmetre-test tests/system/lastmetre.sh [CASE...]   (root; without CASE: all)
. "$(dirname "$0")/hosts_lib.sh"
LEAD_MS=$((TTL_MS / 4))

# A program that records every 5 ms that it runs, like only-one; /usr/bin/says NAME [SIGNAL-TO-IGNORE...]
on h4 sh -c 'cat >/usr/bin/says; chmod 755 /usr/bin/says' <<'END'
#!/bin/bash
name=$1; shift
for s in "$@"; do trap '' "$s"; done
mkfifo "/run/$name.$$" && exec 3<>"/run/$name.$$" && rm "/run/$name.$$"
i=0
while :; do echo "${EPOCHREALTIME/./}" >"/run/$name.$((i = 1 - i))"; read -rt 0.005 -u 3; done
END
said_last() { cat "/proc/$(rig_init h4)"/root/run/"$1".[01] 2>/dev/null | grep -E '^[0-9]{16}$' | sort -n | tail -n 1; }
says_now() { local t; t=$(said_last "$1"); [ -n "$t" ] && [ $(($(now_us) - t)) -lt 200000 ]; }
silent() { ! says_now "$1"; }

HOW_IN_SLICE=$'Slice=tenure-held.slice'
# unit NAME SERVICE-LINES [UNIT-LINES]: NAME.service on h4, bound and started; what it says goes by NAME.
unit() {
	local name=$1 service=$2 more=${3-$'BindsTo=tenure-held.target\nAfter=tenure-held.target'}
	on h4 sh -c "cat >/run/systemd/system/$name.service; rm -f /run/$name.[01]" <<<"[Unit]
StartLimitIntervalSec=0
$more
[Service]
ExecStart=/usr/bin/says $name
$service"
	UNITS+=("$name.service")
}
UNITS=()
begin() { CASE=$1; UNITS=(); until_ok 20 held h4; until_ok 20 all_there; }
go() { # starts the units of the case, and waits until each says that it runs
	local u
	on h4 systemctl daemon-reload
	# Not while the place is lost, as may happen if a machine stalls for longer than a TTL.
	until_ok 30 on h4 systemctl start "${UNITS[@]}" || not_ok "$CASE: they start"
	for u in "${UNITS[@]}"; do until_ok 10 says_now "${u%.service}" || not_ok "$CASE: $u runs"; done
	# What counts is what systemd has reported to the agent.
	for u in "${UNITS[@]}"; do until_ok 10 on h4 grep -q "^$u " /run/tenure/bound || not_ok "$CASE: $u is known"; done
}
end() { # h4 is itself again, and its fence as well
	rig heal
	back "$CASE"
	is "$CASE: the target is up again" "$(prop h4 tenure-held.target ActiveState)" active
	until_ok 5 says_now only-one || not_ok "$CASE: what is bound runs again"
	on h4 systemctl stop "${UNITS[@]}" 2>/dev/null; on h4 sh -c 'for u; do rm -f "/run/systemd/system/$u"; done; systemctl daemon-reload; systemctl reset-failed' sh "${UNITS[@]}"
}
# reported NAME...: the others have been notified; each of these had stopped before. FROM is the first line to look at.
# NEVER: of those, the ones that may be stopped before they say a first word.
reported() {
	local left why ran name
	until_ok 15 has_left "$FROM" || { not_ok "$CASE: the others are notified"; return; }
	read -r left why <<<"$(reported_left "$FROM")"
	for name; do
		ran=$(said_last "$name")
		if [ -z "$ran" ] && [[ " ${NEVER:-} " = *" $name "* ]]; then
			is_quiet "$name" && ok "$CASE: $name had never run ($why)" || not_ok "$CASE: $name runs" "after the others have been notified"
		elif [ -n "$ran" ] && [ "$ran" -lt "$left" ]; then
			# Once more, a while after: it may have gone on.
			is_quiet "$name" && ok "$CASE: $name had stopped $(((left - ran) / 1000)) ms before ($why)" || not_ok "$CASE: $name runs" "after it had stopped"
		elif [ -z "$ran" ]; then not_ok "$CASE: $name has said something"
		else not_ok "$CASE: $name ran twice" "for $(((ran - left) / 1000)) ms at least ($why)"; fi
	done
}
# It says nothing for as long as it takes the others to be at work.
is_quiet() { local before; before=$(said_last "$1"); read -rt 0.2 <>"$DIR/nothing"; [ "$(said_last "$1")" = "$before" ]; }
mkfifo "$DIR/nothing"
# signal_at USEC PID SIGNAL: at that time of CLOCK_BOOTTIME, and to the millisecond
signal_at() { python3 - "$@" <<'END'
import os, signal, sys, time
at, pid, name = int(sys.argv[1]) / 1e6, int(sys.argv[2]), sys.argv[3]
left = at - time.clock_gettime(time.CLOCK_BOOTTIME)
if left < 0: sys.exit(f"{-left:.3f} s too late")
time.sleep(left)
os.kill(pid, getattr(signal, "SIG" + name))
END
}
deadline_us() { on h4 busctl get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager DeadlineUSec | cut -d' ' -f2; }
journal() { on h4 journalctl -u tenured -u tenure-guard -o cat --no-pager -n "${1:-60}"; }

# The service manager itself stands still: nothing is stopped by it, nor killed, nor answered.
case_pid1_stopped() {
	begin "PID 1 stands still"
	unit plain "Restart=always"
	unit inside "KillMode=process"$'\n'"$HOW_IN_SLICE" ""
	go
	local init; init=$(rig_init h4); FROM=$(lines)
	kill -STOP "$init"; rig cut h4
	reported plain inside only-one
	has "$CASE: the alarm is raised" "$(rig journal h4 -u tenured -o cat --no-pager -n 40)" "tenure-held.target is still up at the deadline"
	# It is not asked on new connections all the time.
	asked_less() { rig journal h4 -u tenured -o cat --no-pager -n 60 | grep -q "has not answered for 4000 ms"; }
	until_ok 15 asked_less && ok "$CASE: it is asked less and less often" || not_ok "$CASE: it is asked all the time" "$(rig journal h4 -u tenured -o cat --no-pager -n 60 | grep "not answered")"
	rig heal
	is "$CASE: no joining before it is down" "$(on h1 tenurectl nodes --no-legend | grep -c '^h4 ')" 0
	kill -CONT "$init"
	end
}

# It goes on once the others have been notified, and executes itself anew first: it has no stop to carry out then, and starts
# again, by its Restart=, whatever ends meanwhile.
case_pid1_goes_on() {
	begin "PID 1 goes on, anew, after the place is lost"
	unit plain "Restart=always"$'\n'"RestartSec=0"; go
	local init ran; init=$(rig_init h4); FROM=$(lines)
	kill -STOP "$init"; kill -TERM "$init"; rig cut h4 # SIGTERM says daemon-reexec to it, systemd(1)
	reported plain only-one
	ran=$(said_last plain)
	kill -CONT "$init"
	until_ok 10 is_inactive tenure-held.target || not_ok "$CASE: the target is down"
	is_quiet plain && is "$CASE: the unit was not started again" "$(said_last plain)" "$ran"
	rig heal
	end
}

# Only the guard still works: neither the agent nor systemd, which would restart it, does anything.
case_both() {
	local init how
	for how in STOP KILL; do
		begin "PID 1 stands still, and the agent gets SIG$how"
		unit plain "Restart=always"
		unit inside "KillMode=process"$'\n'"$HOW_IN_SLICE" ""
		go
		init=$(rig_init h4); FROM=$(lines)
		kill -STOP "$init"; kill "-$how" "$(cat "$CG/h4/payload/system.slice/tenured.service/cgroup.procs")"; rig cut h4
		reported plain inside only-one
		rig heal
		kill -CONT "$init"
		end
	done
	# Who hangs for good, and is not ended by a watchdog either, is found to be held up: all is brought down in its stead.
	begin "the agent hangs, and has no watchdog"
	on h4 sh -c 'mkdir -p /run/systemd/system/tenured.service.d; printf "[Service]\nWatchdogSec=0\n" >/run/systemd/system/tenured.service.d/no-watchdog.conf; systemctl daemon-reload; systemctl restart tenured'
	until_ok 20 held h4; until_ok 20 says_now only-one
	unit plain "Restart=always"; go
	FROM=$(lines)
	on h4 systemctl kill -s STOP tenured
	reported plain only-one
	until_ok 10 on h4 test ! -e /run/tenure/held -a ! -e /run/tenure/stopping && ok "$CASE: the guard brings all down" || not_ok "$CASE: the gate is open" "$(journal)"
	on h4 sh -c 'rm /run/systemd/system/tenured.service.d/no-watchdog.conf; systemctl daemon-reload; systemctl kill -s KILL tenured'
	end
}

# The guard comes and goes with the agent, over its restarts, and is not missed for long.
case_guard() {
	local pid runs
	begin "the guard"
	guard_pid() { prop h4 tenure-guard MainPID; }
	pid=$(guard_pid)
	[ "$pid" != 0 ] && ok "$CASE: it runs beside the agent" || not_ok "$CASE: it runs"
	sleep_until_renewed h4; on h4 systemctl restart tenured; until_ok 20 held h4
	is "$CASE: a restart of the agent is none of its own" "$(guard_pid)" "$pid"
	sleep_until_renewed h4; on h4 systemctl kill -s KILL tenured; until_ok 20 held h4
	is "$CASE: the end of the agent does not end the guard" "$(guard_pid)" "$pid"
	runs=$(prop h4 only-one MainPID)
	on h4 systemctl kill -s KILL tenure-guard
	another() { local p; p=$(guard_pid); [ "$p" != 0 ] && [ "$p" != "$pid" ] && [ "$(prop h4 tenure-guard ActiveState)" = active ]; }
	until_ok 10 another && ok "$CASE: killed, it is started again" || not_ok "$CASE: killed, it is gone"
	is "$CASE: and nothing has been stopped" "$(prop h4 tenure-held.target ActiveState) $(until_ok 5 says_now only-one && prop h4 only-one MainPID)" "active $runs"
	on h4 systemctl stop tenured
	until_ok 10 is_inactive tenure-guard && ok "$CASE: it is gone when the agent is stopped" || not_ok "$CASE: it stays"
	on h4 systemctl start tenured
	end
	is "$CASE: the guard is back with the agent" "$(prop h4 tenure-guard ActiveState)" active
}
is_inactive() { [ "$(prop h4 "$1" ActiveState)" = inactive ]; }

# What a person, or a tool of theirs, does to the guard and to what it goes by.
case_guard_and_people() {
	local pid agent before
	begin "the guard ends by a SIGTERM"
	pid=$(prop h4 tenure-guard MainPID)
	on h4 kill -TERM "$pid"
	until_ok 5 another_guard "$pid" && ok "$CASE: it is started again" || not_ok "$CASE: it stays away" "$(prop h4 tenure-guard ActiveState)"
	on h4 systemctl start tenure-guard

	CASE="killall -KILL tenured"
	pid=$(prop h4 tenure-guard MainPID) agent=$(prop h4 tenured MainPID) before=$(prop h4 only-one MainPID)
	sleep_until_renewed h4 # a busy machine takes its time to start both again
	on h4 kill -KILL "$agent" "$pid"
	until_ok 5 another_guard "$pid" && until_ok 20 held h4 && sleep_until_renewed h4
	is "$CASE: the place is held, and what is bound to it runs on" "$(prop h4 only-one MainPID)" "$before"

	# As after an upgrade, or a crash.
	CASE="the guard is restarted while the agent is"
	pid=$(prop h4 tenure-guard MainPID) before=$(prop h4 only-one MainPID)
	sleep_until_renewed h4
	on h4 sh -c 'systemctl kill -s KILL tenured; systemctl restart tenure-guard'
	until_ok 5 another_guard "$pid" && until_ok 20 held h4 && sleep_until_renewed h4
	is "$CASE: bound units keep running" "$(prop h4 only-one MainPID)" "$before"

	CASE="the guard hangs"
	pid=$(prop h4 tenure-guard MainPID) before=$(prop h4 only-one MainPID)
	on h4 systemctl kill -s STOP tenure-guard
	until_ok 20 another_guard "$pid" && ok "$CASE: its watchdog ends it, and another one begins" || not_ok "$CASE: it hangs on" "$(prop h4 tenure-guard ActiveState)"
	is "$CASE: bound units keep running" "$(prop h4 only-one MainPID)" "$before"
	CASE="the guard is stopped"
	on h4 systemctl stop tenure-guard
	unguarded() { on h4 tenurectl check | grep -q "tenure-guard.service is not up"; }
	until_ok 5 unguarded && ok "$CASE: tenurectl check says so" || not_ok "$CASE: nobody says so" "$(on h4 tenurectl check)"
	on h4 systemctl start tenure-guard
	guarded() { ! unguarded; }
	until_ok 5 guarded && ok "$CASE: started again, it does not" || not_ok "$CASE: it still says so"

	CASE="a second guard, by hand"
	on h4 timeout -s KILL 2 /usr/bin/tenured --guard >"$DIR/second.log" 2>&1
	is "$CASE: a second guard ends at once" $? 1
	has "$CASE: and says why" "$(cat "$DIR/second.log")" "Another guard"
	on h4 python3 -c 'import socket; socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM).connect("/run/tenure/guard")' && ok "$CASE: the first one is still notified" || not_ok "$CASE: nobody listens any more"
	end

	local how
	for how in "rm /run/tenure/held /run/tenure/place" "chmod 0 /run/tenure/held /run/tenure/place" "chown 65534 /run/tenure/held /run/tenure/place" "rm /run/tenure/held; : >/run/tenure/held; cp /run/tenure/place /run/p; mv /run/p /run/tenure/place"; do
		begin "$how"
		unit plain "Restart=always"; go
		before=$(prop h4 only-one MainPID)
		on h4 sh -c "$how"; sleep_until_renewed h4
		on h4 systemctl kill -s KILL tenured; until_ok 20 held h4; sleep_until_renewed h4
		is "$CASE: bound units keep running over a restart of the agent" "$(prop h4 only-one MainPID)" "$before"
		on h4 sh -c "$how"; sleep_until_renewed h4
		is "$CASE: bound units keep running without a restart" "$(prop h4 only-one MainPID)" "$before"
		local init; init=$(rig_init h4); FROM=$(lines)
		kill -STOP "$init"; kill -STOP "$(cat "$CG/h4/payload/system.slice/tenured.service/cgroup.procs")"; rig cut h4
		reported plain only-one
		rig heal
		kill -CONT "$init"
		end
	done
}
another_guard() { local p; p=$(prop h4 tenure-guard MainPID); [ "$p" != 0 ] && [ "$p" != "$1" ] && [ "$(prop h4 tenure-guard ActiveState)" = active ]; }

# An agent that is asked to stop, waits for what is bound, and is killed by somebody who does not want to wait: the guard is left.
case_killed_stop() {
	local starts
	begin "the agent is killed while it waits to stop"
	on h4 sh -c 'sed -i "s/^TTL=.*/TTL=8s/" /etc/tenure/tenured.conf; mkdir -p /run/systemd/system/tenure-guard.service.d; printf "[Service]\nTimeoutStopSec=1s\n" >/run/systemd/system/tenure-guard.service.d/short.conf; systemctl daemon-reload; systemctl stop tenured; systemctl start tenured'
	until_ok 20 held h4; until_ok 20 all_there
	target_starts() { on h4 journalctl -u tenure-held.target -o cat --no-pager | grep -c "^Reached target"; }
	killed_stop() {
		until_ok 10 says_now slow; sleep_until_renewed h4
		starts=$(target_starts) FROM=$(lines)
		# There, since it may wait for half a second only.
		on h4 sh -c 'systemctl stop --no-block tenured
			for i in $(seq 500); do [ ! -e /run/tenure/stopping ] || exec systemctl kill -s KILL tenured; sleep 0.01; done
			exit 1' || not_ok "$CASE: it stops"
	}
	unit slow "TimeoutStopSec=60s"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says slow TERM"; go
	killed_stop
	reported slow only-one
	on h4 systemctl start tenured; end
	# It had the place for some seconds yet.
	CASE="the agent is killed while it waits to stop, and what is bound has stopped in time"
	unit slow "TimeoutStopSec=500ms"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says slow TERM"; go
	killed_stop
	reported slow only-one
	is "$CASE: the target was not started again" "$(target_starts)" "$starts"
	until_ok 10 is_inactive tenure-guard || not_ok "$CASE: the guard stays"
	on h4 sh -c 'sed -i "s/^TTL=.*/TTL=2s/" /etc/tenure/tenured.conf; rm -r /run/systemd/system/tenure-guard.service.d; systemctl daemon-reload; systemctl start tenured'
	end
}

# The agent restarts, and PID 1 freezes before it could tell the agent the bound units.
case_next_life() {
	begin "a next life that systemd tells nothing"
	unit plain "Restart=always"; go
	local init; init=$(rig_init h4); FROM=$(lines)
	python3 - "$CG/h4/payload/system.slice/tenured.service/cgroup.procs" "$init" <<'END' || not_ok "$CASE: it begins"
import os, signal, sys, time
def agents():
    try: return [int(p) for p in open(sys.argv[1]).read().split() if open(f"/proc/{p}/cmdline").read().startswith("/usr/bin/tenured")]
    except OSError: return [] # it goes, or is not there yet
old, end = agents(), time.monotonic() + 10
for p in old: os.kill(p, signal.SIGKILL)
while not set(agents()) - set(old):
    if time.monotonic() > end: sys.exit(1)
os.kill(int(sys.argv[2]), signal.SIGSTOP)
END
	rig cut h4
	reported plain only-one
	kill -CONT "$init"
	end
}

# A generator that takes 6 s under a daemon-reload: PID 1 does nothing else meanwhile.
case_slow_generator() {
	begin "a slow generator under daemon-reload"
	unit plain ""; go
	on h4 sh -c 'mkdir -p /run/systemd/system-generators; printf "#!/bin/sh\n[ ! -e /run/slow ] || { : >/run/slow.now; exec sleep 6; }\n" >/run/systemd/system-generators/slow; chmod 755 /run/systemd/system-generators/slow; : >/run/slow'
	FROM=$(lines)
	start reload env RIG="$NAME" "$RIG" exec h4 systemctl daemon-reload
	until_ok 5 on h4 test -e /run/slow.now
	rig cut h4
	reported plain only-one
	on h4 rm -f /run/slow /run/slow.now /run/systemd/system-generators/slow
	end
}

# PID 1 re-executes itself shortly before the stop: pending requests are lost.
case_reexec() {
	local before tries
	for before in 20 60 120; do
		begin "daemon-reexec $before ms before the stop"
		unit plain "Restart=always"; go
		# A machine that is busy may be late with the signal: again, then.
		for ((tries = 1; ; tries++)); do
			sleep_until_renewed h4; local at; at=$(($(deadline_us) - (LEAD_MS + before) * 1000))
			FROM=$(lines); rig cut h4
			# SIGTERM says daemon-reexec to it, systemd(1).
			signal_at "$at" "$(rig_init h4)" TERM && break
			rig heal; back "$CASE"; on h4 systemctl start plain; until_ok 10 says_now plain
			[ $tries -lt 10 ] || { not_ok "$CASE: in time"; return; }
		done
		reported plain only-one
		end
	done
}

# Frozen for longer than the TTL, then thawed: what ignores SIGTERM is not given its TimeoutStopSec= out of the next place.
case_thaw() {
	begin "thawed after the place was lost"
	unit stubborn "TimeoutStopSec=6s"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says stubborn TERM"; go
	FROM=$(lines); rig freeze h4
	until_ok 10 has_left "$FROM" || not_ok "$CASE: the others are notified"
	local t ran n; n=$(lines) t=$(now_us); thaw h4
	until_ok 10 silent stubborn; ran=$(($(said_last stubborn) - t))
	if [ -n "$(said_last stubborn)" ] && [ $ran -lt 300000 ]; then ok "$CASE: what ignores SIGTERM ran $((ran / 1000)) ms"; else not_ok "$CASE: what ignores SIGTERM ran on" "$((ran / 1000)) ms"; fi
	until_ok 15 all_there
	end
}

# While one bound unit is still stopping, others are started, again and again.
case_starts() {
	begin "starts while it stops"
	unit slow "TimeoutStopSec=10s"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says slow TERM"
	unit other ""; go
	FROM=$(lines)
	on h4 sh -c 'systemctl stop other; : >/run/go-on'
	start starter env RIG="$NAME" "$RIG" exec h4 sh -c 'while [ -e /run/go-on ]; do systemctl start --no-block other only-one; sleep 0.01; done'
	rig cut h4
	reported slow other only-one
	on h4 rm -f /run/go-on; wait "$PID"
	rig heal; back "$CASE"
	# The next one is stopped as well.
	FROM=$(lines); rig cut h4; reported only-one
	end
}

# A renewal arrives after all, when the rest is frozen already: it is thawed, even if it is not bound any more.
# With a longer TTL, so that there is time to do that in; on a slow machine with one that is longer still.
case_late_renewal() {
	begin "a renewal that comes late"
	on h4 sh -c 'printf "[Fencing]\nFenceLead=0\n" >>/etc/tenure/tenured.conf'
	local u tries
	for ((tries = 1; ; tries++)); do
		on h4 sh -c 'sed -i "s/^TTL=.*/TTL=$((48 * $1))s/; s/^FenceLead=.*/FenceLead=$((12 * $1))s/" /etc/tenure/tenured.conf; systemctl stop tenured; systemctl start tenured' sh $tries; until_ok 20 all_there
		for u in late loose; do unit $u "TimeoutStopSec=$((14 * tries))s"$'\n'"ExecStopPost=/usr/bin/says $u-post TERM"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says $u TERM"; done
		go
		FROM=$(lines); rig cut h4
		frozen() { grep -q "frozen $2" "$CG/h4/payload/system.slice/$1.service/cgroup.events"; }
		# The daemon-reload that unbinds one begins before, and ends after; it may take longer than there is time.
		until_ok $((60 * tries)) says_now loose-post && until_ok 5 says_now late-post || [ $tries -lt 3 ] || not_ok "$CASE: they clean up"
		on h4 sh -c 'sed -i "/=tenure-held.target/d" /run/systemd/system/loose.service; mkdir -p /run/systemd/system-generators; : >/run/slow; rm -f /run/slow.now
			printf "#!/bin/sh\n[ -e /run/slow ] && : >/run/slow.now; n=0; while [ -e /run/slow ] && [ \$n -lt $1 ]; do sleep 0.02; n=\$((n + 1)); done\n" >/run/systemd/system-generators/slow; chmod 755 /run/systemd/system-generators/slow' sh $((600 * tries))
		start reload env RIG="$NAME" "$RIG" exec h4 systemctl daemon-reload
		both_frozen() { frozen loose 1 && frozen late 1; }
		until_ok $((5 * tries)) both_frozen || [ $tries -lt 3 ] || not_ok "$CASE: it is frozen"
		on h4 sh -c 'test -e /run/slow.now; rm -f /run/slow; n=0; while grep -q "^loose.service" /run/tenure/bound && [ $n -lt 200 ]; do sleep 0.01; n=$((n + 1)); done'
		rig heal
		goes_on() { frozen late 0 || has_left "$FROM"; }
		until_ok 20 goes_on; wait "$PID"
		[ -n "$(reported_left "$FROM")" ] || break
		[ $tries -lt 3 ] || { not_ok "$CASE: in time"; break; }
		back "$CASE"; on h4 systemctl kill -s KILL loose late; until_ok 10 on h4 systemctl stop loose late
	done
	is "$CASE: the place is kept" "$(reported_left "$FROM")" ""
	until_ok 10 says_now late-post && ok "$CASE: what was frozen goes on" || not_ok "$CASE: what was frozen goes on"
	until_ok 10 says_now loose-post && ok "$CASE: so does what is not bound any more" || not_ok "$CASE: what is not bound any more stays frozen" "$(cat "$CG/h4/payload/system.slice/loose.service/cgroup.events")"
	on h4 sh -c 'sed -i "s/^TTL=.*/TTL=2s/; /Fencing/d; /FenceLead/d" /etc/tenure/tenured.conf; systemctl kill -s KILL loose late; rm -f /run/systemd/system-generators/slow; systemctl stop tenured; systemctl start tenured'
	end
}

# Whatever is left of a unit, or is bound only by another, or hangs in a clean-up, counts.
case_leftovers() {
	begin "what is left over"
	# A child that outlives its main process, in a session of its own.
	unit parent "KillMode=process"$'\n'"ExecStart="$'\n'"ExecStart=/bin/sh -c 'setsid /usr/bin/says parent TERM & exec sleep infinity'"
	unit unordered "" "BindsTo=tenure-held.target"
	unit child "ExecStart="$'\n'"ExecStart=/usr/bin/says child TERM" "Requires=only-one.service"
	unit after "ExecStopPost=/usr/bin/says after-post TERM"
	# Killed halfway to the deadline, it goes on to its ExecStopPost=, which is frozen shortly before that.
	unit late "ExecStopPost=/usr/bin/says late-post TERM"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says late TERM"$'\n'"$HOW_IN_SLICE" ""
	go
	FROM=$(lines); rig cut h4
	# On a slow machine the fence comes before an ExecStopPost= has begun.
	NEVER="after-post late-post" reported parent unordered child after after-post late late-post only-one
	end
}
case_leave_leftovers() {
	begin "leaving, with something left over"
	unit parent "KillMode=process"$'\n'"ExecStart="$'\n'"ExecStart=/bin/sh -c 'setsid /usr/bin/says parent TERM & exec sleep infinity'"
	unit child "TimeoutStopSec=2s"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says child TERM" "Requires=only-one.service"
	unit after "TimeoutStopSec=2s"$'\n'"ExecStopPost=/usr/bin/says after-post TERM"
	go
	FROM=$(lines); on h4 systemctl stop tenured
	reported parent child after after-post
	on h4 systemctl start tenured
	end
}

# A mount in use is not down, whatever the state of its stop job.
case_mount() {
	begin "a mount that is busy"
	on h4 sh -c 'mkdir -p /srv/data; printf "[Unit]\nBindsTo=tenure-held.target\nAfter=tenure-held.target\n[Mount]\nWhat=tmpfs\nWhere=/srv/data\nType=tmpfs\n" >/run/systemd/system/srv-data.mount; systemctl daemon-reload; systemctl start srv-data.mount'
	# (A unit with its WorkingDirectory= there would be bound by it.)
	on h4 systemd-run --quiet --unit=busy sh -c 'cd /srv/data && exec sleep infinity'
	until_ok 5 on h4 sh -c 'ls -l /proc/[0-9]*/cwd | grep -q /srv/data'
	FROM=$(lines); start stopping env RIG="$NAME" "$RIG" exec h4 systemctl stop tenured
	# Its stop has failed at least once.
	until_ok 10 sh -c "env RIG=$NAME '$RIG' exec h4 journalctl -u srv-data.mount -o cat --no-pager | grep -q 'Failed unmounting'"
	sleep_until_renewed h4
	is "$CASE: no host reports that it left" "$(reported_left "$FROM")" ""
	# (systemd says active, or deactivating while it tries once more.)
	is "$CASE: the file system is mounted" "$(on h4 findmnt -no TARGET /srv/data)" /srv/data
	on h4 systemctl stop busy
	until_ok 10 has_left "$FROM" && ok "$CASE: it leaves once that is unmounted" || not_ok "$CASE: it leaves once that is unmounted"
	is "$CASE: the file system is not mounted" "$(on h4 findmnt -n /srv/data)" ""
	wait "$PID"; on h4 systemctl start tenured
	end; on h4 rm -f /run/systemd/system/srv-data.mount
}
# A mount is not unmounted by who is killed for it: what unmounts is let be, in the slice and outside.
case_unmount() {
	begin "a mount that takes its time to be unmounted"
	on h4 sh -c 'printf "#!/bin/sh\nsleep 0.3; exec umount -i \"\$1\"\n" >/sbin/umount.ramfs; chmod 755 /sbin/umount.ramfs; mkdir -p /srv/data /srv/more'
	local m slice
	for m in data more; do
		slice=; [ $m = data ] || slice=$HOW_IN_SLICE
		printf '[Unit]\nBindsTo=tenure-held.target\nAfter=tenure-held.target\n[Mount]\nWhat=ramfs\nWhere=/srv/%s\nType=ramfs\n%s\n' $m "$slice" | on h4 sh -c "cat >/run/systemd/system/srv-$m.mount"
		unit user-$m "WorkingDirectory=/srv/$m"$'\n'"$slice" $'BindsTo=tenure-held.target\nAfter=tenure-held.target\nRequiresMountsFor=/srv/'$m
	done
	go
	FROM=$(lines); rig freeze h4
	until_ok 10 has_left "$FROM" || not_ok "$CASE: the others are notified"
	local t; t=$(now_us); rig thaw h4
	until_ok 10 all_there && ok "$CASE: it is back after $((($(now_us) - t) / 1000)) ms" || not_ok "$CASE: it comes back" "$(on h4 findmnt -n -o TARGET /srv/data; on h4 findmnt -n -o TARGET /srv/more)"
	for m in data more; do has "$CASE: /srv/$m was unmounted" "$(on h4 journalctl -u srv-$m.mount -o cat --no-pager)" "Unmounted srv-$m.mount"; done
	end; on h4 sh -c 'systemctl stop srv-data.mount srv-more.mount; rm -f /run/systemd/system/srv-*.mount; systemctl daemon-reload'
}

# FenceAction=reboot: killed first, then the host is gone at once, though PID 1 stands still.
case_reboot() {
	begin "FenceAction=reboot"
	on h4 sh -c 'printf "[Fencing]\nFenceAction=reboot\n" >>/etc/tenure/tenured.conf; systemctl reload tenured'
	# A name of its own: where the host is a container, the control group of this unit stays frozen.
	unit undying "TimeoutStopSec=90s"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says ../var/undying TERM"
	on h4 systemctl daemon-reload; on h4 systemctl start undying; until_ok 5 says_now ../var/undying || not_ok "$CASE: it runs"
	local init gone left ran; init=$(rig_init h4); FROM=$(lines)
	start gone python3 -c 'import os, select, sys, time
fd = os.pidfd_open(int(sys.argv[1])); p = select.poll(); p.register(fd, select.POLLIN); print("looks", flush=True); p.poll(); print(int(time.time() * 1e6))' "$init"
	local w=$PID; until_ok 10 grep -q looks "$DIR/gone.log"
	kill -STOP "$init"; rig cut h4
	until_ok 10 has_left "$FROM" || not_ok "$CASE: the others are notified"
	read -r left _ <<<"$(reported_left "$FROM")"
	wait "$w"; gone=$(tail -n 1 "$DIR/gone.log")
	if [ $((gone - left)) -lt 3000000 ]; then ok "$CASE: the host is gone $(((gone - left) / 1000)) ms after the others were notified"; else not_ok "$CASE: the host was there" "for $(((gone - left) / 1000)) ms after the others were notified"; fi
	rig heal; back "$CASE"
	# Its control group had been frozen; a host in a container has it still.
	until_ok 5 says_now only-one && ok "$CASE: what is bound runs again" || not_ok "$CASE: what is bound runs again"
	ran=$(said_last ../var/undying)
	if [ -n "$ran" ] && [ "$ran" -lt "$left" ]; then ok "$CASE: what ignores SIGTERM had stopped $(((left - ran) / 1000)) ms before"; else not_ok "$CASE: it ran twice" "$(((${ran:-0} - left) / 1000)) ms"; fi
	on h4 sh -c 'sed -i "/Fencing/d; /FenceAction/d" /etc/tenure/tenured.conf; systemctl reload tenured'
	end
}

# A bound unit that takes longer to stop than systemd gives the agent: the agent asks for more, and renews meanwhile.
case_slow_stop() {
	begin "a stop that takes longer than the agent's own"
	on h4 sh -c 'mkdir -p /run/systemd/system/tenured.service.d; printf "[Service]\nTimeoutStopSec=3s\n" >/run/systemd/system/tenured.service.d/short.conf'
	unit slow "TimeoutStopSec=8s"$'\n'"$HOW_IN_SLICE"$'\n'"ExecStart="$'\n'"ExecStart=/usr/bin/says slow TERM" ""
	go
	FROM=$(lines); local t; t=$(now_us); on h4 systemctl stop tenured
	reported slow only-one
	has "$CASE: the host leaves in order" "$(reported_left "$FROM")" " left$"
	if [ $(($(said_last slow) - t)) -gt 6000000 ]; then ok "$CASE: it had its $((($(said_last slow) - t) / 1000)) ms"; else not_ok "$CASE: it was ended" "after $((($(said_last slow) - t) / 1000)) ms"; fi
	on h4 sh -c 'rm -r /run/systemd/system/tenured.service.d; systemctl daemon-reload; systemctl start tenured'
	end
}

# The main process is moved out of the unit's control group, as a session manager does for su(1) and PAMName=: systemd stops that
# process alone, and here it ignores that.
case_elsewhere() {
	begin "a main process in a scope of its own"
	local move='busctl --quiet call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager StartTransientUnit "ssa(sv)a(sa(sv))" aside.scope fail 1 PIDs au 1 $$$$ 0'
	unit aside "TimeoutStopSec=20s"$'\n'"$HOW_IN_SLICE"$'\n'"ExecStart="$'\n'"ExecStart=/bin/sh -c '$move && exec /usr/bin/says aside TERM'"
	go
	until_ok 10 on h4 grep -q '^aside.service .*/aside.scope$' /run/tenure/bound && ok "$CASE: the agent finds it" || not_ok "$CASE: the agent finds it" "$(on h4 cat /run/tenure/bound)"
	has "$CASE: it is named" "$(on h4 tenurectl check)" "aside.service has its main process in .*/aside.scope, outside of its own control group"
	FROM=$(lines); rig cut h4
	reported aside only-one
	end
}

# What cannot be fenced in time is listed, with what to do about it.
case_check() {
	begin "tenurectl check"
	unit loose "TimeoutStopSec=infinity" "BindsTo=tenure-held.target"
	unit inside "TimeoutStopSec=100ms"$'\n'"$HOW_IN_SLICE" ""
	go
	checked() { on h4 tenurectl check | grep -q "loose.service is not ordered after tenure-held.target"; }
	until_ok 5 checked && ok "$CASE: a unit without After=" || not_ok "$CASE: a unit without After=" "$(on h4 tenurectl check)"
	local said; said=$(on h4 tenurectl check); is "$CASE: tenurectl check exits with 1" "$(on h4 tenurectl check >/dev/null; echo $?)" 1
	has "$CASE: a unit outside of the slice is named" "$said" "loose.service is not in tenure-held.slice: .* set Slice=tenure-held.slice"
	has "$CASE: a unit that may stop too late is named" "$said" "loose.service may take for ever to stop .*killed after 250 ms"
	is "$CASE: a unit without a problem is not named" "$(grep inside.service <<<"$said")" ""
	has "$CASE: FenceLead= beside the TTL" "$said" "With a TTL of 2000 ms the stop begins 500 ms before the deadline, .* FenceLead=250ms or less, or TTL=8000ms or more"
	has "$CASE: the journal says it, too" "$(journal)" "loose.service is not ordered after"
	is "$CASE: each once" "$(on h4 journalctl -u tenured -o cat --no-pager | grep -c 'loose.service is not ordered')" 1
	end
}

[ $# -gt 0 ] || set -- pid1_stopped pid1_goes_on both guard guard_and_people killed_stop next_life slow_generator reexec thaw late_renewal starts leftovers leave_leftovers elsewhere mount unmount reboot slow_stop check
for c; do "case_$c"; done
for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
finish
