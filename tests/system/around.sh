#!/usr/bin/env bash
# What is around the agent on a real systemd host, and must not decide about its place: a journal and a DNS that hang, a bus that
# is restarted, people who disable, reload and ask. usage: BIN=build/release/bin DIR=build/around-test tests/system/around.sh (root)
. "$(dirname "$0")/hosts_lib.sh"
said() { on h4 journalctl -u tenured -o cat --no-pager | grep -qE "$1"; }

# ---- the journal hangs, with all its sockets full
on h4 sh -c 'cat >/run/fill.py' <"$(dirname "$0")/fill_journal.py"
l=$(lease h4) n=$(times_of_h4)
on h4 systemctl kill -s STOP systemd-journald
start fill env RIG="$NAME" "$RIG" exec h4 /usr/bin/python3 /run/fill.py; FILL=$PID
until_ok 10 grep -q full "$DIR/fill.log" || not_ok "the journal's socket is full" "$(cat "$DIR/fill.log")"
p=$(prop h4 tenured MainPID); sleep_until_renewed h4; on h4 systemctl kill -s KILL tenured
# dbus-daemon logs whenever it is to start somebody, and hangs in that with the journal: nobody asks for the agent before it is there.
on_the_bus() { on h4 busctl call org.freedesktop.DBus /org/freedesktop/DBus org.freedesktop.DBus NameHasOwner s org.tenure.Membership1 | grep -q true; }
another() { local q; q=$(prop h4 tenured MainPID); [ "${q:-0}" -gt 1 ] && [ "$q" != "$p" ] && on_the_bus && held h4; }
until_ok 10 another; is "the journal hangs: an agent that is killed comes back with its lease" "$(lease h4)" "$l"
is "the journal hangs: nobody hears of it" "$(times_of_h4)" "$n"
n=$(lines); t=$(now_us); rig cut h4
until_ok 10 has_left "$n"; read -r left reason <<<"$(reported_left "$n")"; ran=$(last_run)
if [ "$ran" -lt "${left:-0}" ]; then ok "the journal hangs, and the cable is pulled: it had stopped $(((left - ran) / 1000)) ms before others are notified"; else not_ok "the journal hangs: it ran twice" "for $(((ran - left) / 1000)) ms"; fi
kill "$FILL"; wait "$FILL" 2>/dev/null; on h4 systemctl kill -s CONT systemd-journald; rig heal; back "the journal hangs"
on h4 systemctl reload tenured
until_ok 10 said "[0-9]+ log messages are missing here" && ok "what it did not take is counted" || not_ok "what it did not take is counted"

# ---- DNS says nothing, and the agent is restarted while it waits for it
on h4 sh -c 'echo nameserver 10.77.0.200 >/etc/resolv.conf; sed -i "s|^Endpoints=|Endpoints=http://nowhere.test:2379,|" /etc/tenure/tenured.conf; systemctl restart tenured'
until_ok 10 held h4; l=$(lease h4) n=$(times_of_h4) p=$(prop h4 tenured MainPID)
sleep_until_renewed h4; T=$(now_us); on h4 systemctl restart tenured; ms=$((($(now_us) - T) / 1000))
until_ok 10 another; is "DNS is silent: a restart keeps the lease" "$(lease h4)" "$l"
if [ $ms -lt 4500 ]; then ok "DNS is silent: it restarts within $ms ms"; else not_ok "DNS is silent" "$ms ms for a restart"; fi
is "DNS is silent: nobody hears of it" "$(times_of_h4)" "$n"
on h4 sh -c 'sed -i "s|http://nowhere.test:2379,||" /etc/tenure/tenured.conf; systemctl restart tenured'; back "DNS is silent"

# ---- out until join, whatever becomes of the agent
state() { on h4 busctl get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager State 2>/dev/null | cut -d'"' -f2; }
out() { [ "$(state)" = left ] && [ "$(prop h4 tenured ActiveState)" = active ]; }
stays_out() { # WHAT COMMAND...
	local what=$1 n
	shift
	n=$(lines); "$@"
	until_ok 20 out && ok "$what: it stays out" || not_ok "$what: it stays out" "$(state)"
	is "$what: nobody hears of it" "$(tail -n "+$n" "$DIR/watch.h1.log" | grep -c '"NodeJoined","name":"h4"')" 0
	is "$what: the target is down" "$(prop h4 tenure-held.target ActiveState)" inactive
}
on h4 tenurectl leave; is "tenurectl leave: it is out" "$(state)" left
stays_out "out, and the agent is killed" on h4 systemctl kill -s KILL tenured
stays_out "out, and the agent is restarted" on h4 systemctl restart tenured
stays_out "out, and the agent is stopped and started" on h4 sh -c 'systemctl stop tenured; systemctl start tenured'
on h4 tenurectl join; back "tenurectl join"
on h4 tenurectl leave --persistent
reboot() { rig kill h4; rig start h4 >/dev/null; }
stays_out "out for good, and the host boots" reboot
has "tenurectl status says that it stays out after the boot" "$(on h4 tenurectl status)" "Stays out: also after the next boot"
on h4 tenurectl join; back "tenurectl join, after a boot"

# ---- another target in the settings: the old one goes first
on h4 sh -c 'printf "[Unit]\nAssertPathExists=/run/tenure/held\nAfter=tenured.service\n" >/etc/systemd/system/other-held.target; systemctl daemon-reload; printf "[Fencing]\nHeldTarget=other-held.target\n" >>/etc/tenure/tenured.conf; systemctl reload tenured'
until_ok 5 said "HeldTarget= has changed; not while this place is held" && ok "another target is not for now" || not_ok "another target is not for now"
l=$(lease h4); sleep_until_renewed h4; on h4 systemctl restart tenured; until_ok 10 held h4
is "a restart keeps the lease" "$(lease h4)" "$l"
is "and the old target stays up" "$(prop h4 tenure-held.target ActiveState) $(prop h4 other-held.target ActiveState)" "active inactive"
until_ok 5 said "HeldTarget=other-held.target waits" && ok "and says why" || not_ok "and says why"
on h4 sh -c 'systemctl stop tenured; systemctl start tenured'; up() { [ "$(prop h4 "$1" ActiveState)" = active ]; }
until_ok 10 up other-held.target && ok "a stop and a start: the other one is up" || not_ok "the other one is up"
is "and the old target is down, with its bound units" "$(prop h4 tenure-held.target ActiveState) $(prop h4 only-one ActiveState)" "inactive inactive"
on h4 sh -c 'sed -i "/Fencing/,\$d" /etc/tenure/tenured.conf; systemctl stop tenured; systemctl start tenured'; back "the first target again"

# ---- asked for on the bus: starts it, but not once it is disabled
on h4 systemctl enable --quiet tenured; on h4 systemctl stop tenured
on h4 tenurectl nodes >/dev/null 2>&1; back "somebody asks on the bus for an agent that was stopped"
on h4 systemctl disable --quiet --now tenured; n=$(lines)
on h4 tenurectl nodes >/dev/null 2>&1
is "disabled: whoever asks on the bus does not start it" "$(prop h4 tenured ActiveState)" inactive
is "disabled: no host reports a new node" "$(tail -n "+$n" "$DIR/watch.h1.log" | grep -c '"NodeJoined","name":"h4"')" 0
on h4 systemctl enable --quiet --now tenured; back "enabled again"

# ---- the bus is restarted while the host sleeps: its waking up is not heard of
start suspend env RIG="$NAME" "$RIG" suspend h4 10; SLEEP=$PID
asleep() { on h4 test -e /run/asleep; }; until_ok 10 asleep; is "the agent leaves before the host sleeps" "$(state)" left
on h4 systemctl restart dbus systemd-logind; wait "$SLEEP"
back "a bus that is restarted while the host sleeps"

# ---- what the agent counts comes out by a socket and by a file, in their sandboxes
on h4 systemctl start tenured-metrics.socket
metrics() { on h4 curl -s --max-time 10 http://127.0.0.1:9479/metrics; }
metric() { metrics | awk -v m="tenure_agent_$1" '$1 == m { print $2 }'; }
is "metrics: by the socket" "$(metric up) $(metric held)" "1 1"
n=$(metric fences_total); on h4 tenurectl leave; on h4 tenurectl join; back "metrics: a leave and a join"
is "metrics: one more fence is counted, and it was in time" "$(($(metric fences_total) - n)) $(metric fence_seconds_count) $(metric fences_late_total)" "1 $((n + 1)) 0"
on h4 sh -c 'mkdir -p /var/lib/prometheus/node-exporter; systemctl start tenured-metrics-file.timer'
until_ok 20 on h4 grep -q '^tenure_agent_up 1$' /var/lib/prometheus/node-exporter/tenured.prom && ok "metrics: by the file" || not_ok "metrics: by the file" "$(on h4 systemctl status tenured-metrics-file.service --no-pager)"
is "metrics: systemd-analyze security says 1.8 at most" "$(on h4 systemd-analyze security --no-pager --threshold=18 tenured-metrics.service >"$DIR/exposure.metrics" 2>&1; echo $?)" 0
# A thousand connections at once, half a request on each: more than four of an address are closed, and others are answered. Nothing
# of it disables the socket.
on h1 /usr/bin/python3 - 10.77.0.4 >"$DIR/flood.log" 2>&1 <<'END'
import socket, sys
all = []
for _ in range(1000):
    all.append(socket.create_connection((sys.argv[1], 9479), timeout=10))
    all[-1].send(b"GET /metr")
for s in all:
    s.settimeout(10)
ends = 0
for s in all:
    try:
        ends += s.recv(1) == b""
    except OSError:
        ends += 1
print("ended", ends)
END
is "metrics: a thousand connections of one host" "$(cat "$DIR/flood.log")" "ended 1000"
is "metrics: are the log's one line" "$(on h4 journalctl -u tenured-metrics -p warning -o cat --no-pager | grep -c "too many requests at a time; closed unanswered: [0-9]*, the last one of 10.77.0.1")" 1
is "metrics: the socket still answers" "$(metric up) $(prop h4 tenured-metrics.socket ActiveState)" "1 active"
on h4 systemctl kill --signal=KILL tenured-metrics.service
answers() { [ "$(metric up)" = 1 ]; }; until_ok 10 answers && ok "metrics: and when its process was killed" || not_ok "metrics: its process was killed" "$(on h4 systemctl status tenured-metrics.service --no-pager)"
on h4 systemctl stop tenured-metrics.socket tenured-metrics-file.timer
is "metrics: the port is closed with the socket" "$(metrics; echo $?) $(prop h4 tenured-metrics.service ActiveState)" "7 inactive"

# ---- a boot without a core ends, and what is bound starts once there is a place
on h4 sh -c 'sed -i "s|^Endpoints=.*|&\nReadyAfter=1s|; s|10.77.0.[123]:|10.77.0.99:|g" /etc/tenure/tenured.conf'; rig kill h4
rig start h4 >"$DIR/start.log" 2>&1 && ok "a boot without a core ends" || not_ok "a boot without a core ends" "$(tail -n 1 "$DIR/start.log")"
is "after a boot without a core, nothing bound runs" "$(state) $(prop h4 only-one ActiveState)" "joining inactive"
on h4 sh -c 'sed -i "/ReadyAfter/d; s|^Endpoints=.*|Endpoints=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379|" /etc/tenure/tenured.conf; systemctl restart tenured'; back "a core, after a boot without one"
is "the agent has few privileges: systemd-analyze security says at most 1.8" "$(on h4 systemd-analyze security --no-pager --threshold=18 tenured >"$DIR/exposure" 2>&1; echo $?)" 0
is "the agent has a real-time priority" "$(on h4 ps -o cls= -p "$(prop h4 tenured MainPID)" | tr -d ' ')" RR
is "memory is taken from others first" "$(prop h4 tenured OOMScoreAdjust) $(prop h4 tenure-core OOMScoreAdjust)" "-900 -500"

for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
is "no host has a unit that failed" "$(failed_units)" ""
finish
