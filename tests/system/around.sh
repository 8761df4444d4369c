#!/usr/bin/env bash
# What is around the agent on a real systemd host, and must not decide about its place: a journal and a DNS that hang, a bus that
# is restarted, people who disable, reload and ask. usage: BIN=build/release/bin DIR=build/around-test tests/system/around.sh (root)
. "$(dirname "$0")/hosts_lib.sh"
said() { on h4 journalctl -u tenured -o cat --no-pager | grep -qE "$1"; }
times_of_h4() { grep -c '"name":"h4"' "$DIR/watch.h1.log"; }

# ---- the journal hangs, with all its sockets full
on h4 sh -c 'cat >/run/fill.py' <<'END'
import socket
def fill(path, kind):
    while True:  # each sender has a limit of its own
        s = socket.socket(socket.AF_UNIX, kind)
        s.setblocking(False)
        kept.append(s)
        n = 0
        try:
            s.connect(path)
            while True:
                s.send(b"MESSAGE=full\n" * 20)
                n += 1
        except (BlockingIOError, OSError):
            if n == 0:
                return
kept = []
for path in "/run/systemd/journal/socket", "/run/systemd/journal/dev-log": fill(path, socket.SOCK_DGRAM)
print("full", flush=True)
import time
while True: time.sleep(100)
END
l=$(lease h4) n=$(times_of_h4)
on h4 systemctl kill -s STOP systemd-journald
start fill env RIG="$NAME" "$RIG" exec h4 /usr/bin/python3 /run/fill.py; FILL=$PID
until_ok 10 grep -q full "$DIR/fill.log" || not_ok "the journal's socket is full" "$(cat "$DIR/fill.log")"
p=$(prop h4 tenured MainPID); on h4 systemctl kill -s KILL tenured
another() { local q; q=$(prop h4 tenured MainPID); [ "${q:-0}" -gt 1 ] && [ "$q" != "$p" ] && held h4; }
until_ok 5 another; is "the journal hangs: an agent that is killed comes back with its lease" "$(lease h4)" "$l"
is "the journal hangs: nobody hears of it" "$(times_of_h4)" "$n"
n=$(lines); t=$(now_us); rig cut h4
until_ok 10 has_left "$n"; read -r left reason <<<"$(told_left "$n")"; ran=$(last_run)
if [ "$ran" -lt "${left:-0}" ]; then ok "the journal hangs, and the cable is pulled: it had stopped $(((left - ran) / 1000)) ms before others are told"; else not_ok "the journal hangs: it ran twice" "for $(((ran - left) / 1000)) ms"; fi
kill "$FILL"; wait "$FILL" 2>/dev/null; on h4 systemctl kill -s CONT systemd-journald; rig heal; back "the journal hangs"
on h4 systemctl reload tenured
until_ok 10 said "[0-9]+ log messages are missing here" && ok "what it did not take is counted" || not_ok "what it did not take is counted"

# ---- DNS says nothing, and the agent is restarted while it waits for it
on h4 sh -c 'echo nameserver 10.77.0.200 >/etc/resolv.conf; sed -i "s|^Endpoints=|Endpoints=http://nowhere.test:2379,|" /etc/tenure/tenured.conf; systemctl restart tenured'
until_ok 10 held h4; l=$(lease h4) n=$(times_of_h4) p=$(prop h4 tenured MainPID)
T=$(now_us); on h4 systemctl restart tenured; ms=$((($(now_us) - T) / 1000))
until_ok 10 another; is "DNS is silent: a restart keeps the lease" "$(lease h4)" "$l"
if [ $ms -lt 2500 ]; then ok "DNS is silent: it restarts within $ms ms"; else not_ok "DNS is silent" "$ms ms for a restart"; fi
is "DNS is silent: nobody hears of it" "$(times_of_h4)" "$n"
on h4 sh -c 'sed -i "s|http://nowhere.test:2379,||" /etc/tenure/tenured.conf; systemctl restart tenured'; back "DNS is silent"

for h in h1 h2 h3 h4; do rig journal $h -o short-precise --no-pager >"$DIR/journal.$h" 2>/dev/null; done
is "no host has a unit that failed" "$(for h in h1 h2 h3 h4; do on $h systemctl --failed --no-legend; done)" ""
finish
