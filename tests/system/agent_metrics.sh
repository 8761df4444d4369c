#!/usr/bin/env bash
# What the agent counts, as `tenurectl metrics` prints it, writes it into a file and answers a request with it.
# usage: BIN=build/release/bin DIR=build/agent-metrics-test tests/system/agent_metrics.sh
. "$(dirname "$0")/lib.sh"
wants_plain
BIN=$(realpath "$BIN")
read -r c1 h1 h2 < <(free_ports 3)
URL=http://127.0.0.1:$c1
start core "$BIN/tenure-core" --name x1 --data-dir "$DIR/core" --listen-client-urls "$URL"
CORE=$PID
BUS=unix:path=$PLAIN/bus
cat >"$DIR/bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$BUS</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile
until_ok 20 busctl --address="$BUS" list
agent() {
	start agent env RUNTIME_DIRECTORY="$DIR/run" DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$BIN/tenured" --endpoints="$URL" --node-name="$1" --node-id=00000000000000000000000000000001 --ttl=5s --log-level=info
	AGENT=$PID
}
mkdir "$DIR/run"
agent m1
ctl() { timeout 20 "$BIN/tenurectl" --bus="$BUS" "$@"; }
metric() { ctl metrics | awk -v m="tenure_agent_$1" '$1 == m { print $2 }'; }
more() { local v; v=$(metric "$1"); [ "${v%.*}" -ge "$2" ] 2>/dev/null; }
until_ok 20 ctl status || { not_ok "the agent holds its place" "$(tail -n 3 "$DIR/agent.log")"; finish; exit 1; }

# ---- the text ----
is "promtool has nothing to say" "$(ctl metrics | promtool check metrics 2>&1)" ""
is "the place is held" "$(metric up) $(metric held) $(metric places_total) $(metric 'state{state="held"}') $(metric nodes)" "1 1 1 1 1"
is "tenure_agent_info names the version and the node" "$(metric "info{version=\"$("$BIN/tenurectl" --version | awk '{ print $NF }')\",cluster=\"default\",node=\"m1\"}")" 1
until_ok 30 more heartbeats_acknowledged_total 3 && ok "heartbeats are counted" || not_ok "heartbeats are counted" "$(ctl metrics)"
out=$(ctl metrics)
of() { awk -v m="tenure_agent_$1" '$1 == m { print $2 }' <<<"$out"; }
n=$(of heartbeats_acknowledged_total)
is "each has a round trip and a margin" "$(of round_trip_seconds_count) $(of renewal_margin_seconds_count) $(of 'round_trip_seconds_bucket{le="+Inf"}') $(of 'renewal_margin_seconds_bucket{le="+Inf"}')" "$n $n $n $n"
# Renewed at half of the TTL of 5 s, so about 2.5 s are left; a busy machine leaves less.
is "a margin is no longer than the TTL" "$(of 'renewal_margin_seconds_bucket{le="5"}')" "$n"
is "a margin is not zero" "$(awk -v s="$(of renewal_margin_seconds_sum)" -v n="$n" 'BEGIN { print (s / n > 0.2 && s / n <= 2.53) }')" 1
is "the deadline is ahead" "$(awk -v m="$(of margin_seconds)" 'BEGIN { print (m > 0 && m <= 5) }')" 1
is "no place was lost" "$(of jeopardies_total) $(of losses_total)" "0 0"

# ---- a request ----
start http env DBUS_SYSTEM_BUS_ADDRESS="$BUS" systemd-socket-activate --accept --inetd -l "127.0.0.1:$h1" -E DBUS_SYSTEM_BUS_ADDRESS "$BIN/tenurectl" metrics --http
until_ok 10 curl -sf -o /dev/null "http://127.0.0.1:$h1/metrics" || not_ok "it listens" "$(tail -n 3 "$DIR/http.log")"
get() { curl -s --max-time 10 -o "$DIR/body" -w '%{http_code} %{content_type}' "$@"; }
is "GET /metrics" "$(get "http://127.0.0.1:$h1/metrics")" "200 text/plain; version=0.0.4; charset=utf-8"
is "GET /metrics passes promtool" "$(promtool check metrics <"$DIR/body" 2>&1; grep -c '^tenure_agent_up 1$' "$DIR/body")" 1
is "GET /metrics with a query" "$(get "http://127.0.0.1:$h1/metrics?x=y" | cut -d' ' -f1)" 200
is "HEAD has no body" "$(get -I "http://127.0.0.1:$h1/metrics" | cut -d' ' -f1) $(curl -sI "http://127.0.0.1:$h1/metrics" | grep -c tenure_agent)" "200 0"
is "another path is not found" "$(get "http://127.0.0.1:$h1/" | cut -d' ' -f1)" 404
is "POST is not allowed" "$(get -d x=y "http://127.0.0.1:$h1/metrics" | cut -d' ' -f1)" 405
is "headers without end" "$(get -H "X: $(head -c 20000 /dev/zero | tr '\0' x)" "http://127.0.0.1:$h1/metrics" | cut -d' ' -f1)" 431
is "a request that is not HTTP" "$(printf 'hello\r\n\r\n' | timeout 10 "$BIN/tenurectl" --bus="$BUS" metrics --http | head -n 1 | tr -d '\r')" "HTTP/1.1 400 Bad Request"
# The process for a silent client ends after 5 seconds.
mkfifo "$DIR/silent"
sleep 30 >"$DIR/silent" & PIDS+=($!)
timeout 20 "$BIN/tenurectl" --bus="$BUS" metrics --http <"$DIR/silent" >"$DIR/silent.out" 2>&1 & # a 124 if it waits longer
SILENT=$!

# ---- one that accepts for itself, as behind tenured-metrics.socket ----
start accepts env DBUS_SYSTEM_BUS_ADDRESS="$BUS" systemd-socket-activate -l "127.0.0.1:$h2" -E DBUS_SYSTEM_BUS_ADDRESS "$BIN/tenurectl" metrics --http; ACCEPTS=$PID
until_ok 10 curl -sf -o /dev/null "http://127.0.0.1:$h2/metrics" || not_ok "it accepts" "$(tail -n 3 "$DIR/accepts.log")"
is "again and again" "$(for _ in 1 2 3 4 5 6; do get "http://127.0.0.1:$h2/metrics" | cut -d' ' -f1; done | sort | uniq -c | xargs)" "6 200"
/usr/bin/python3 - "$h2" "$DIR" >"$DIR/many.log" 2>&1 <<'END' &
import select, socket, sys, time
port, all = int(sys.argv[1]), []
for n in range(300):
    all.append(socket.create_connection(("127.0.0.1", port), timeout=10, source_address=(f"127.0.0.{n % 3 + 2}", 0)))
    all[-1].send(b"GET /metr")
closed = lambda: len(select.select(all, [], [], 0.1)[0])
until = time.monotonic() + 4  # the others have said nothing for 5 s then
while closed() < 288 and time.monotonic() < until:
    time.sleep(.05)
print("closed", closed(), flush=True)
open(sys.argv[2] + "/many", "w").close()
while closed() < 300:  # the others have said nothing for 5 s
    time.sleep(.05)
END
MANY=$!
until_ok 20 test -e "$DIR/many"; is "of 300 connections from three addresses, four of each address stay" "$(cat "$DIR/many.log")" "closed 288"
is "each with its process" "$(pgrep -P "$ACCEPTS" | wc -l)" 12
is "another address is answered" "$(get --interface 127.0.0.9 "http://127.0.0.1:$h2/metrics" | cut -d' ' -f1)" 200
wait $MANY; is "a silent connection is closed" $? 0
no_child() { [ -z "$(pgrep -P "$ACCEPTS")" ]; }; until_ok 5 no_child && ok "and no process is left" || not_ok "processes are left" "$(ps --ppid "$ACCEPTS")"
is "the limit is logged once" "$(grep -c "^<4>tenurectl: too many requests at a time; closed unanswered: 1, the last one of 127.0.0." "$DIR/accepts.log")" 1

# ---- a file ----
ctl metrics --output="$DIR/tenured.prom"; is "into a file" "$? $(stat -c %a "$DIR/tenured.prom") $(promtool check metrics <"$DIR/tenured.prom" 2>&1)" "0 644 "
is "no temporary file is left beside the output" "$(find "$DIR" -name 'tenured.prom*' | wc -l)" 1
has "a folder that there is not" "$(ctl metrics --output="$DIR/nowhere/x.prom" 2>&1)" "^tenurectl: cannot write $DIR/nowhere/x.prom: No such file"
ln -s tenured.prom "$DIR/link"; mkfifo "$DIR/pipe"
for f in link pipe; do
	has "metrics are not written over a $f" "$(ctl metrics --output="$DIR/$f" 2>&1; echo "rc $?")" "^tenurectl: cannot write $DIR/$f: it is there, and is not a regular file"
	has "and neither is a snapshot" "$(timeout 20 "$BIN/tenurectl" --endpoints="$URL" core snapshot save "$DIR/$f" 2>&1; echo "rc $?")" "^tenurectl: cannot write $DIR/$f: it is there, and is not a regular file"
done
is "they stay" "$(stat -c %F "$DIR/link" "$DIR/pipe" | paste -sd,)" "symbolic link,fifo"

# ---- what goes wrong ----
LOSSES=$(metric losses_total) JEOPARDIES=$(metric jeopardies_total) PLACES=$(metric places_total)
kill -STOP $CORE
until_ok 20 more losses_total $((LOSSES + 1)) && ok "a core that is silent: the place is lost" || not_ok "the place is lost" "$(ctl metrics)"
is "after a jeopardy" "$(metric jeopardies_total) $(metric held) $(metric margin_seconds)" "$((JEOPARDIES + 1)) 0 0"
kill -CONT $CORE
until_ok 30 more places_total $((PLACES + 1)) && ok "and taken again" || not_ok "and taken again" "$(ctl metrics)"
kill -9 $AGENT
until_ok 10 sh -c "! busctl --address='$BUS' status org.tenure.Membership1"
out=$(ctl metrics 2>/dev/null); is "no agent is an error" "$? $(grep -v '^#' <<<"$out")" "1 tenure_agent_up 0"
ctl metrics --output="$DIR/tenured.prom"; is "without an agent the file says so" "$? $(grep -v '^#' "$DIR/tenured.prom")" "0 tenure_agent_up 0"
get "http://127.0.0.1:$h1/metrics" >/dev/null; is "without an agent the answer says so" "$(grep -v '^#' "$DIR/body")" "tenure_agent_up 0"
wait $SILENT; is "a client that sends no request gets no answer" "$? $(stat -c %s "$DIR/silent.out")" "0 0"
finish
