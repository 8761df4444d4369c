#!/usr/bin/env bash
# tenured and tenurectl as a host sees them: D-Bus, sd_notify, a bus that goes and comes, TLS, a name that is taken, settings.
# usage: BIN=build/release/bin DIR=build/agent-test tests/system/agent.sh
. "$(dirname "$0")/lib.sh"
wants_plain for-others

read -r c p s sp < <(free_ports 4)
BUS=unix:abstract=tenure-agent-test-$$
cat >"$DIR/bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$BUS</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile; BUSPID=$PID
start_replica core "$c" "$p"
ctl() { timeout 10 "$BIN/tenurectl" --bus="$BUS" "$@"; }
ctl_forever() { exec "$BIN/tenurectl" --bus="$BUS" "$@"; }
call() { timeout 10 busctl --address="$BUS" "$@"; }
ID=0123456789abcdef0123456789abcdef

until_ok 10 call list >/dev/null
has "tenurectl without an agent says so" "$(ctl status 2>&1)" "is tenured running"

# The messages for systemd.
cat >"$DIR/notify.py" <<'END'
import socket, sys
s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
s.bind(sys.argv[1])
while True:
    print(s.recv(4096).decode().replace("\n", " "), flush=True)
END
start notify /usr/bin/python3 "$DIR/notify.py" "$PLAIN/notify"
until_ok 5 test -S "$PLAIN/notify"
printf '[Agent]\nEndpoints=http://127.0.0.1:1,http://127.0.0.1:%s\nNodeName=web1\nNodeId=%s\nTTL=2s\nTags=zone=a\nServicesPath=%s\n' "$c" $ID "$PLAIN/services.d" >"$DIR/agent.conf"
mkdir "$PLAIN/services.d" && printf '[Service]\nPort=80\nTags=proto=http\n' >"$PLAIN/services.d/web.service-entry"
start agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" NOTIFY_SOCKET="$PLAIN/notify" WATCHDOG_USEC=30000000 "$BIN/tenured" -c "$DIR/agent.conf"; AGENT=$PID
until_ok 10 ctl status && ok "it joins, though the first endpoint is dead" || not_ok "it joins"
until_ok 5 grep -q READY=1 "$DIR/notify.log" && ok "READY=1" || not_ok "READY=1"
until_ok 5 grep -q WATCHDOG=1 "$DIR/notify.log" && ok "WATCHDOG=1" || not_ok "WATCHDOG=1"
has "STATUS= is for people" "$(cat "$DIR/notify.log")" "STATUS=Holding lease [0-9a-f]{16} as web1 in cluster default of [01] nodes"
has "tenurectl status" "$(ctl | tr '\n' ' ')" "Node: web1 \($ID\) .*State: held .*TTL 2 s, ends in [012]\.[0-9] s"
is "tenurectl nodes --no-legend" "$(ctl nodes --no-legend | awk '/^[^ ]/ {print $1, $3}')" "web1 2"
is "tenurectl nodes --json" "$(ctl nodes --json=short | jq -r '.[0].Name')" web1
is "A46: tenurectl nodes NODE that is not there" "$(ctl nodes nobody >/dev/null 2>&1; echo $?)" 1
is "tenurectl status --json" "$(ctl status --json=short | jq -r .State)" held
is "an unknown command" "$(ctl dance 2>&1)" "tenurectl: unknown command 'dance'; see tenurectl --help."
M="org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager"
has "busctl ListNodes" "$(call call $M ListNodes)" 'a\(ssxo\) 1 "web1" "'$ID'" [0-9]+ "/org/tenure/Membership1/node/web1"'
is "busctl GetNode" "$(call call $M GetNode s web1)" 'o "/org/tenure/Membership1/node/web1"'
has "busctl GetNode of nobody" "$(call call $M GetNode s nobody 2>&1)" "No node 'nobody' is in the cluster"
is "a property" "$(call get-property $M State)" 's "held"'
has "introspection tells the signals" "$(call introspect org.tenure.Membership1 /org/tenure/Membership1)" "\.NodeLeft +signal +sssxo"
# Services of files and of programs: the messages about each, and who gets them.
entry() { printf '[Service]\n%b' "$2" >"$PLAIN/services.d/$1.service-entry"; }
S() { etcdctl --endpoints "127.0.0.1:$c" get "/tenure/default/services/$1" --print-value-only; }
key_is() { S "$1" | truly "$2"; }
until_ok 5 key_is web/web1 '.port == 80 and .tags.proto == "http" and .node == "web1"' && ok "a service of a file is in the core" || not_ok "a service of a file" "$(S web/web1)"
is "a service of a file: its key is on the node's lease" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/services/web/web1 -w json | jq .kvs[0].lease)" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1 -w json | jq .kvs[0].lease)"
until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS services | grep -q '^web '"
has "tenurectl services" "$(ctl services)" "^web +web1 +- +80 "
has "busctl ListServices" "$(call call $M ListServices)" 'a\(sssxo\) 1 "web" "web1" "" [0-9]+ "/org/tenure/Membership1/service/web/web1/_"'
is "busctl GetService" "$(call call $M GetService sss web web1 '')" 'o "/org/tenure/Membership1/service/web/web1/_"'
has "busctl GetService of nothing" "$(call call $M GetService sss web nobody '' 2>&1)" "No service 'web' is on a node 'nobody'"
start registrant ctl_forever register cache/a Port=11211 role=primary; REGISTRANT=$PID
until_ok 5 key_is cache/web1/a '.port == 11211 and .tags.role == "primary" and .instance == "a"' && ok "a program registers" || not_ok "a program registers" "$(cat "$DIR/registrant.log")"
has "a registered name is refused to another program" "$(timeout 5 "$BIN/tenurectl" --bus="$BUS" register cache/a 2>&1)" "The service 'cache' a on this host belongs to somebody else"
has "and so is the name of a service of a file" "$(timeout 5 "$BIN/tenurectl" --bus="$BUS" register web 2>&1)" "The service 'web' on this host belongs to somebody else"
has "a name that is none" "$(timeout 5 "$BIN/tenurectl" --bus="$BUS" register a,b 2>&1)" "name are letters, digits"
has "a port that is none" "$(timeout 5 "$BIN/tenurectl" --bus="$BUS" register x Port=70000 2>&1)" "Port= is a number from 1 to 65535"
kill -9 $REGISTRANT; wait $REGISTRANT 2>/dev/null; until_ok 5 sh -c "[ -z \"\$(etcdctl --endpoints 127.0.0.1:$c get /tenure/default/services/cache --prefix)\" ]" && ok "when it dies, the service is gone" || not_ok "when it dies" "$(S cache/web1/a)"
entry web 'Name=www\nPort=81\n'; entry bad 'Port=x\n'; kill -HUP $AGENT
until_ok 5 key_is www/web1 '.port == 81' && ok "SIGHUP: a file says something else" || not_ok "SIGHUP: a file" "$(tail -n 3 "$DIR/agent.log")"
until_ok 5 sh -c "[ -z \"\$(etcdctl --endpoints 127.0.0.1:$c get /tenure/default/services/web/ --prefix)\" ]" && ok "and what it said before is gone" || not_ok "what it said before"
has "a file with an error is named" "$(cat "$DIR/agent.log")" "services.d/bad.service-entry:2: Port= must be a whole number"
entry www 'Name=www\n'; rm "$PLAIN/services.d/bad.service-entry"; kill -HUP $AGENT
until_ok 5 grep -q "www.service-entry: the service www is already published by web.service-entry" "$DIR/agent.log" && ok "two files, one service" || not_ok "two files, one service"
rm "$PLAIN/services.d/www.service-entry"
ctl set-tags rack=7 zone=b && until_ok 5 sh -c "etcdctl --endpoints 127.0.0.1:$c get /tenure/default/nodes/web1 --print-value-only | jq '.tags == {\"rack\": \"7\", \"zone\": \"b\"}' | grep -q true" && ok "tenurectl set-tags" || not_ok "tenurectl set-tags"
ctl set-tags zone=; has "NAME= removes it, and the settings' is back" "$(until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS nodes --json=short | jq '.[0].Tags.zone == \"a\"' | grep -q true"; ctl nodes --json=short | jq -c '.[0].Tags')" '{"rack":"7","zone":"a"}'
has "a tag that is none" "$(ctl set-tags 'a b=1' 2>&1)" "Tags' names are letters, digits"
R=$(etcdctl --endpoints "127.0.0.1:$c" put /elsewhere x -w json | jq .header.revision)
is "tenurectl wait-revision, of a change elsewhere" "$([ "$(ctl wait-revision "$R")" -ge "$R" ] && echo yes)" yes
has "tenurectl wait-revision, of a revision that is not reached" "$(ctl wait-revision 1000000 0.2 2>&1)" "Revision 1000000 has not been reached"
is "tenurectl describe" "$(ctl describe | jq -c '[.state, .node, .nodes[0].name, .services[0].service, .services[0].port]')" '["held","web1","web1","www",81]'
is "tenurectl describe has counts of the kernel's reports" "$(ctl describe | jq -c ".netlink.dumps >= 1 and .netlink.overflows == 0")" true

# The manual page tells every method, signal and property that is served.
PAGE=$(cat "$(dirname "$0")/../../agent/tenured/org.tenure.Membership1.5")
for o in /org/tenure/Membership1:Manager /org/tenure/Membership1/node/web1:Node /org/tenure/Membership1/service/www/web1/_:Service; do
	missing= n=0
	for m in $(call introspect org.tenure.Membership1 "${o%:*}" "org.tenure.Membership1.${o##*:}" | awk '$1 ~ /^[.]/ {print substr($1, 2)}'); do n=$((n + 1)); grep -qw "$m" <<<"$PAGE" || missing+=" $m"; done
	is "org.tenure.Membership1(5) tells all of ${o##*:}'s $n" "$([ $n -gt 5 ] || echo too few)$missing" ""
	i=org.tenure.Membership1.${o##*:}
	is "the introspection of ${o##*:}, as it is installed, is what is served" "$(call introspect --xml-interface org.tenure.Membership1 "${o%:*}" | sed -n "/<interface name=\"$i\">/,/<\/interface>/p" | diff - <("$BIN/tenured" "--introspect=$i" | grep -v '^<'))" ""
done
has "ObjectManager has the node" "$(call call org.tenure.Membership1 /org/tenure/Membership1 org.freedesktop.DBus.ObjectManager GetManagedObjects)" "node/web1"
has "A39: the key is on the agent's lease" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1 -w json | jq .kvs[0].lease)" "^[1-9][0-9]+$"
is "etcdctl sees the key" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1 --print-value-only | jq -r .id)" $ID
is "a node tells the name of its operating system" "$(ctl nodes --json=short | jq -r '.[] | select(.Name == "web1") | .OSRelease')" "$(. /etc/os-release; echo "$PRETTY_NAME")"

LOG="org.tenure.Membership1 /org/freedesktop/LogControl1 org.freedesktop.LogControl1"
is "LogControl1 tells the level" "$(call get-property $LOG LogLevel SyslogIdentifier | tr '\n' ' ')" 's "info" s "tenured" '
call set-property $LOG LogLevel s debug; is "LogControl1 sets the level" "$(call get-property $LOG LogLevel)" 's "debug"'
has "LogControl1 refuses an unknown level" "$(call set-property $LOG LogLevel s loud 2>&1)" "LogLevel must be err, warning, notice, info or debug, not 'loud'"

# Settings, read again.
printf '[Agent]\nEndpoints=http://127.0.0.1:1,http://127.0.0.1:%s\nNodeName=web9\nNodeId=%s\nTTL=3s\nTags=zone=a\nServicesPath=%s\nLogLevel=notice\n[Fencing]\nFenceLead=2s\n' "$c" $ID "$PLAIN/services.d" >"$DIR/agent.conf"
kill -HUP $AGENT; until_ok 5 grep -q "LogLevel= has changed" "$DIR/agent.log"
has "SIGHUP: the log says what takes effect at once, and what later" "$(grep "has changed" "$DIR/agent.log" | sed 's/.*notice *//' | tr '\n' ' ')" \
	"^NodeName= has changed; not while this place is held: stop the agent, and start it. TTL= has changed; from the next lease on. LogLevel= has changed. FenceLead= has changed. $"
has "SIGHUP is a reload for systemd" "$(cat "$DIR/notify.log")" "RELOADING=1 MONOTONIC_USEC=[0-9]+"
sed -i s/TTL=3s/TTL=1s/ "$DIR/agent.conf"; kill -HUP $AGENT; until_ok 5 grep -q WATCHDOG_USEC=250000 "$DIR/notify.log" && ok "a shorter TTL: a shorter watchdog" || not_ok "a shorter TTL: a shorter watchdog"
is "the new log level is in effect" "$(call get-property $LOG LogLevel)" 's "notice"'
echo Nonsense=1 >>"$DIR/agent.conf"; kill -HUP $AGENT
until_ok 5 grep -q "The settings in force remain unchanged" "$DIR/agent.log" && ok "SIGHUP with an error changes nothing" || not_ok "SIGHUP with an error"
has "SIGHUP with an error: the log names the line" "$(cat "$DIR/agent.log")" "$DIR/agent.conf:11: unknown key 'Nonsense' in .Fencing.. The settings in force"
printf '[Agent]\nEndpoints=http://127.0.0.1:1,http://127.0.0.1:%s\nNodeName=web1\nNodeId=%s\nTTL=10s\nTags=zone=a\nServicesPath=%s\n' "$c" $ID "$PLAIN/services.d" >"$DIR/agent.conf"; kill -HUP $AGENT
until_ok 5 sh -c "[ \$(grep -c 'LogLevel= has changed' '$DIR/agent.log') = 2 ]"
# From here on it has a lease that a slow restart does not outlast.
RUN=() # nor a directory in /run yet
agent() { start agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" "${RUN[@]}" "$BIN/tenured" -c "$DIR/agent.conf" "$@"; AGENT=$PID; }
kill $AGENT; wait $AGENT; agent
until_ok 10 ctl status || not_ok "another lease" "$(tail -n 3 "$DIR/agent.log")"

# Other nodes join, leave and change; the watcher gets each event once.
start watch ctl_forever watch --json=short; WATCH=$PID
E() { etcdctl --endpoints "127.0.0.1:$c" "$@" >/dev/null; }
probe() { E put /tenure/default/nodes/probe '{}'; grep -q probe "$DIR/watch.log"; }
until_ok 5 probe || not_ok "tenurectl watch hears nothing"
E del /tenure/default/nodes/probe
E put /tenure/default/nodes/db1 '{"id":"i","incarnation":"a"}'; E put /tenure/default/nodes/db1 '{"id":"i","incarnation":"a","ttl_ms":5}'; E del /tenure/default/nodes/db1
until_ok 5 grep -q NodeLeft.*db1 "$DIR/watch.log"
is "tenurectl watch" "$(jq -r 'select(.name == "db1") | .event + " " + (.reason // "")' "$DIR/watch.log" | tr '\n' ',')" "NodeJoined ,NodeChanged ,NodeLeft expired,"

# A client that may write to the core can choose the text of a record, but must not control a terminal by it.
rogue='"a\u001b[2J\u009b31m\u202e\r\u007f"'
E put /tenure/default/nodes/rogue "{\"id\":\"i\",\"os_release\":$rogue,\"since\":$rogue,\"addresses\":[$rogue]}"; E put /tenure/default/services/odd/rogue "{\"unit\":$rogue}"
until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS services | grep -q rogue" || not_ok "a rogue's records"
controls() { LC_ALL=C grep -acP '[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]|\xe2\x80\xae'; }
for words in nodes services "nodes --json=pretty" "services --json=short" describe "--endpoints=127.0.0.1:$c top --once" "--endpoints=127.0.0.1:$c cache --once --prefix /tenure/default/"; do
	# shellcheck disable=SC2086
	out=$(ctl $words); is "no control character of a hostile record is printed: $words" "$(grep -c rogue <<<"$out" | sed 's/[1-9].*/there/') $(controls <<<"$out")" "there 0"
done
has "a hostile record is shown with its bytes escaped" "$(ctl nodes rogue)" '^rogue +a\\x1b\[2J\\xc2\\x9b31m\\xe2\\x80\\xae\\x0d\\x7f '
is "JSON has the characters of a hostile record" "$(ctl nodes rogue --json=short | jq ".[0].Addresses[0] == $rogue")" true
E del /tenure/default/nodes/rogue; E del /tenure/default/services/odd/rogue

# A second agent with the same name but another identity is refused, and told why; with the same identity it takes the place over.
start other env DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent "$BIN/tenured" -c "$DIR/agent.conf" --node-id ffffffffffffffffffffffffffffffff; OTHER=$PID
until_ok 5 grep -q "the name 'web1' is held by another node (id $ID" "$DIR/other.log" && ok "a name that is taken" || not_ok "a name that is taken" "$(cat "$DIR/other.log")"
until_ok 5 grep -q "Not on the system bus" "$DIR/other.log" && ok "without a bus it goes on, and says so" || not_ok "without a bus"
is "the first one holds on" "$(ctl status --json=short | jq -r .State)" held
kill $OTHER; wait $OTHER; is "SIGTERM while joining ends with 0" $? 0
kill -9 $AGENT; wait $AGENT 2>/dev/null; agent
until_ok 5 ctl status && ok "after kill -9 it takes its own place over at once" || not_ok "after kill -9" "$(tail -n 3 "$DIR/agent.log")"
until_ok 5 grep -q replaced "$DIR/watch.log" || not_ok "others hear that it was replaced"
kill $WATCH

# With a directory in /run it resumes the place instead, after a crash and after a restart, and no other host notices.
kill $AGENT; wait $AGENT
mkdir "$DIR/run"; RUN=(RUNTIME_DIRECTORY="$DIR/run")
lease() { ctl status --json=short | jq -r .LeaseId; }
agent; until_ok 5 ctl status; L=$(lease)
until_ok 5 grep -q "LEASE=$L" "$DIR/run/place" && ok "it keeps its place in /run" || not_ok "it keeps its place in /run" "$(cat "$DIR/run/place")"
revision() { etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1 -w json | jq .kvs[0].mod_revision; }
R=$(revision)
kill -9 $AGENT; wait $AGENT 2>/dev/null; agent
until_ok 5 ctl status; is "after kill -9 it goes on with its lease" "$(lease)" "$L"
start registrant2 ctl_forever register queue Port=1; REGISTRANT=$PID; until_ok 5 key_is queue/web1 '.port == 1' || not_ok "tenurectl register, again" "$(cat "$DIR/registrant2.log")"
ctl set-tags kept=yes; until_ok 5 sh -c "etcdctl --endpoints 127.0.0.1:$c get /tenure/default/nodes/web1 --print-value-only | grep -q kept"
# But for the claim of the other agent above, which ends by itself.
mods() { etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/ --prefix -w json | jq -r '.kvs[] | "\(.key | @base64d | ltrimstr("/tenure/default/")):\(.mod_revision)"' | grep -v ^claims/ | tr '\n' ' '; }
R=$(revision) MODS=$(mods)
kill -USR1 $AGENT; wait $AGENT; is "SIGUSR1 ends it with 0" $? 0
is "and keeps its place" "$(printf %016x "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1 -w fields | awk '/"Lease"/ {print $3}')")" "$L"
agent; until_ok 5 ctl status; is "after a restart it goes on with its lease" "$(lease)" "$L"
until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS services queue"; is "after a restart: the service of a program is still registered" "$(S queue/web1 | jq .port)" 1
is "there was nothing that others could have heard" "$(mods)" "$MODS"
kill -USR1 $AGENT; wait $AGENT; kill -9 $REGISTRANT; wait $REGISTRANT 2>/dev/null; agent
until_ok 5 sh -c "[ -z \"\$(etcdctl --endpoints 127.0.0.1:$c get /tenure/default/services/queue --prefix)\" ]" && ok "a program that went while no agent was there" || not_ok "a program that went" "$(S queue/web1)"
until_ok 5 ctl status; is "and the lease is the same" "$(lease)" "$L"
# Another name in the settings, and a restart: it keeps the name that it holds until that place ends.
sed -i s/NodeName=web1/NodeName=web7/ "$DIR/agent.conf"; kill -USR1 $AGENT; wait $AGENT; agent
until_ok 10 grep -q "NodeName=web7 waits: this place is held as web1" "$DIR/agent.log" && ok "another name waits for the place to be given back" || not_ok "another name waits" "$(tail -n 3 "$DIR/agent.log")"
until_ok 10 ctl status; is "the place stays" "$(lease) $(ctl status --json=short | jq -r .NodeName)" "$L web1"
kill $AGENT; wait $AGENT; agent; until_ok 5 ctl status; is "a stop and a start: the name counts" "$(ctl status --json=short | jq -r .NodeName)" web7
kill $AGENT; wait $AGENT; sed -i "s/NodeName=web7/NodeName=web1/; s/TTL=10s/TTL=2s/" "$DIR/agent.conf"; agent; until_ok 5 ctl status; until_ok 5 sh -c "grep -q LEASE= '$DIR/run/place'"
kill -9 $AGENT; wait $AGENT 2>/dev/null; sed -i 's/^NODE=web1/NODE=web2/' "$DIR/run/place"
agent; until_ok 10 grep -q "left is damaged" "$DIR/agent.log" && ok "a damaged file is no place" || not_ok "a damaged file is no place"
until_ok 5 ctl status; until_ok 5 sh -c "grep -q LEASE= '$DIR/run/place'"; L=$(lease)
kill -9 $AGENT; wait $AGENT 2>/dev/null
until_ok 5 sh -c "[ -z \"\$(etcdctl --endpoints 127.0.0.1:$c get /tenure/default/nodes/web1)\" ]"
agent; until_ok 5 grep -q "lost its place: no renewal was acknowledged" "$DIR/agent.log" && ok "who comes back too late knows that it lost" || not_ok "who comes back too late"
until_ok 5 ctl status
is "an agent that comes back too late gets another lease" "$([ "$(lease)" != "$L" ] && echo yes)" yes
kill $AGENT; wait $AGENT; is "an agent that leaves leaves no place to resume" "$(cat "$DIR/run/place")" ""
agent --ttl 10s; until_ok 5 ctl status

# If nobody reads the log, everything else continues.
mkfifo "$DIR/nobody"
start reader /usr/bin/python3 -c 'import os,sys,time
f = os.open(sys.argv[1], os.O_RDWR | os.O_NONBLOCK)
try:
    while True: os.write(f, b"x" * 4096)
except BlockingIOError: print("full", flush=True)
while True: time.sleep(100)' "$DIR/nobody"; READER=$PID
until_ok 5 grep -q full "$DIR/reader.log"
kill -USR1 $AGENT; wait $AGENT
L=$(sed -n 's/^LEASE=//p' "$DIR/run/place"); DBUS_SYSTEM_BUS_ADDRESS="$BUS" RUNTIME_DIRECTORY="$DIR/run" "$BIN/tenured" -c "$DIR/agent.conf" --log-level debug 2<>"$DIR/nobody" & AGENT=$!; PIDS+=("$AGENT")
until_ok 10 ctl status; is "a log that nobody reads holds up nobody" "$(lease)" "$L"
kill -USR1 $AGENT; wait $AGENT; kill $READER; agent; until_ok 5 ctl status

# Out on request, and in again.
ctl leave && ok "tenurectl leave" || not_ok "tenurectl leave"
is "after tenurectl leave the state is left" "$(call get-property $M State)" 's "left"'
is "and the node's key is deleted when leave returns" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1)" ""
is "leave, when it has left" "$(ctl leave; echo $?)" 0
has "and says that it stays out" "$(ctl status)" "Stays out: until the next boot"
kill -9 $AGENT; wait $AGENT 2>/dev/null; agent
stays_out() { [ "$(call get-property $M State)" = 's "left"' ] && [ "$(call get-property $M Maintenance)" = "s \"$1\"" ]; }
until_ok 5 stays_out boot && ok "after a crash it stays out" || not_ok "after a crash it stays out" "$(ctl status)"
kill $AGENT; wait $AGENT; agent
until_ok 5 stays_out boot && ok "after a stop and a start, too" || not_ok "after a stop and a start" "$(ctl status)"
is "its key is not there" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1)" ""
ctl join; until_ok 5 ctl status && ok "tenurectl join" || not_ok "tenurectl join"
kill $AGENT; wait $AGENT; mkdir "$DIR/state"; export STATE_DIRECTORY="$DIR/state"; agent; until_ok 5 ctl status && ok "and that it keeps to" || not_ok "and that it keeps to" "$(ctl status)"
ctl leave --persistent; kill $AGENT; wait $AGENT; rm -r "$DIR/run"; mkdir "$DIR/run"; agent # as after a boot
until_ok 5 stays_out persistent && ok "leave --persistent: after a boot, too" || not_ok "leave --persistent" "$(ctl status)"
ctl join; kill $AGENT; wait $AGENT; agent; until_ok 5 ctl status && ok "until join" || not_ok "until join" "$(ctl status)"
mv "$DIR/state" "$DIR/state.away"
has "leave --persistent, and nothing can be written: it says that it will not last" "$(ctl leave --persistent 2>&1; echo " $?")" "will join again at its next boot: .*No such file or directory"
is "and has left" "$(call get-property $M State)" 's "left"'
mv "$DIR/state.away" "$DIR/state"; ctl join; until_ok 5 ctl status
is "tenurectl reports that its output cannot be written" "$(ctl nodes 2>&1 >/dev/full; echo $?)" "$(printf 'tenurectl: cannot write to standard output: No space left on device.\n1')"
has "a flag that is none" "$(call call $M LeaveWithFlags t 6 2>&1)" "The only flag is 1"
is "join, when it holds" "$(ctl join; echo $?)" 0
# Nothing else wakes it up for seconds: not at the next heartbeat, but at once.
kill $AGENT; wait $AGENT; agent --ttl 60s; until_ok 5 ctl status; T=$(date +%s%N)
for _ in 1 2 3 4; do ctl leave; ctl join; until_ok 5 ctl status; done; T=$((($(date +%s%N) - T) / 1000000))
[ $T -lt 20000 ] && ok "leave is at once, whatever the TTL" || not_ok "leave is at once, whatever the TTL" "4 times, with join, in $T ms"
kill $AGENT; wait $AGENT; agent; until_ok 5 ctl status

# Who is not root is asked about at polkit, with what a rule can decide on.
LOAD=$(dirname "$BIN")/tests/system/bus_load
if [ "$(id -u)" = 0 ]; then
	cp "$BIN/tenurectl" "$LOAD" "$PLAIN"
	start polkit "$LOAD" "$BUS" polkit; POLKIT=$PID; until_ok 5 grep -q ready "$DIR/polkit.log"
	as_nobody() { timeout 10 setpriv --reuid nobody --clear-groups "$PLAIN/tenurectl" --bus="$BUS" "$@" 2>&1; }
	start permitted setpriv --reuid nobody --clear-groups "$PLAIN/tenurectl" --bus="$BUS" register allowed; PERMITTED=$PID
	until_ok 5 key_is allowed/web1 '.node == "web1"' && ok "polkit lets a program register" || not_ok "polkit lets a program register" "$(cat "$DIR/permitted.log")"
	has "polkit does not let a program register another one" "$(as_nobody register other)" "polkit asks for authentication"
	has "polkit does not let it leave" "$(as_nobody leave)" "cannot leave: polkit asks for authentication"
	has "polkit does not let it join" "$(as_nobody --no-ask-password join)" "cannot join: polkit asks for authentication"
	has "polkit does not let it set tags" "$(as_nobody set-tags a=b)" "cannot set the tags: polkit asks for authentication"
	has "polkit does not let it take locks" "$(as_nobody --endpoints=http://127.0.0.1:1 lock job -- true)" "cannot take the turn of this host: polkit asks for authentication"
	is "polkit gets the node, the service, and whether to ask the user" "$(tail -n +2 "$DIR/polkit.log" | sed 's/org.tenure.Membership1.//' | tr '\n' ',')" \
		"register-service node=web1 service=allowed flags=1,register-service node=web1 service=other flags=1,manage node=web1 flags=1,manage node=web1 flags=0,set-tags node=web1 flags=1,lock node=web1 lock=job flags=1,"
	kill $POLKIT $PERMITTED
else
	skip "polkit, for who is not root" "needs root, to call as somebody else"
fi

# The bus dies and comes back: the lease is kept, and the agent answers again.
L=$(ctl status --json=short | jq -r .LeaseId)
kill -9 $BUSPID; wait $BUSPID 2>/dev/null
start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile
until_ok 10 ctl status && ok "the bus came back, so did the agent" || not_ok "the bus came back"
is "with the same lease" "$(ctl status --json=short | jq -r .LeaseId)" "$L"

# The wall clock is set back and forth by days, on both sides; leases do not look at it.
kill -USR1 $AGENT; wait $AGENT; CLOCK=$(dirname "$BIN")/tests/system/wrong_clock.so; echo 0 >"$DIR/clock"
if [ -e "$CLOCK" ]; then
	preloaded "$CLOCK"
	export WRONG_CLOCK="$DIR/clock" ASAN_OPTIONS="${ASAN_OPTIONS:-}:verify_asan_link_order=0"
	start core2 env LD_PRELOAD="$PRELOADED" "$BIN/tenure-core" --name x --data-dir "$DIR/core2" --listen-client-urls "http://127.0.0.1:$s" --listen-peer-urls "http://127.0.0.1:$sp"; CORE2=$PID
	start agent2 env LD_PRELOAD="$PRELOADED" DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$BIN/tenured" -c "$DIR/agent.conf" --endpoints "http://127.0.0.1:$s"; AGENT=$PID
	until_ok 10 ctl status; L=$(lease)
	last() { call get-property $M LastRenewalUSec | cut -d' ' -f2; }
	later() { [ "$(last)" -gt "$1" ]; }
	for days in 3 -5 400 0; do echo $((days * 86400)) >"$DIR/clock"; r=$(last); until_ok 5 later "$r"; r=$(last); until_ok 5 later "$r"; done
	is "the wall clock jumps by days: the lease is kept" "$(lease)" "$L"
	has "the clock did jump" "$(etcdctl --endpoints "127.0.0.1:$s" get /tenure/default/nodes/web1 --print-value-only | jq -r .since; echo 31536000 >"$DIR/clock"; ctl set-tags z=1; ctl leave; ctl join; until_ok 5 ctl status; ctl nodes --json=short | jq -r '.[0].Since' | tr '\n' ' ')" "$(date -d '+365 days' +%Y)"
	kill $AGENT; wait $AGENT; kill $CORE2; unset WRONG_CLOCK
else skip "the wall clock jumps" "no $CLOCK"; fi
agent; until_ok 5 ctl status

# A lock on the host's lease, around a command.
has "tenurectl lock: the command knows its place in the order" "$(ctl lock job -- sh -c 'echo "$TENURE_LOCK_KEY $TENURE_LOCK_REVISION"')" "^job/[0-9a-f]+ [1-9][0-9]*$"
is "tenurectl lock exits with the command's status" "$(ctl lock job -- sh -c 'exit 7'; echo $?)" 7
is "the command of tenurectl lock keeps its options" "$(ctl lock job -- echo --json -- x)" "--json -- x"
has "a command that is none" "$(ctl lock job -- /nonexistent 2>&1; echo $?)" "cannot run /nonexistent"
locked() { [ -n "$(etcdctl --endpoints "127.0.0.1:$c" get job/ --prefix --keys-only)" ]; }
is "the lock is given back" "$(locked; echo $?)" 1
waiters() { [ "$(etcdctl --endpoints "127.0.0.1:$c" get job/ --prefix --keys-only | grep -c job)" = "$1" ]; }
start other-lock timeout 60 etcdctl --endpoints "127.0.0.1:$c" lock job -- "${UNTIL_THERE[@]}" "$DIR/other-goes"; until_ok 5 waiters 1
start waits ctl_forever lock job -- echo mine; LOCKER=$PID; until_ok 5 waiters 2 || not_ok "a second tenurectl lock waits" "$(cat "$DIR/waits.log")"
is "a second tenurectl lock does not run beside the first one" "$(cat "$DIR/waits.log")" ""
touch "$DIR/other-goes"; wait $LOCKER; is "but after it" "$? $(cat "$DIR/waits.log")" "0 mine"
start locker ctl_forever lock job -- sleep 60; LOCKER=$PID; until_ok 5 locked; kill $LOCKER; wait $LOCKER; is "SIGTERM goes to the command" $? 143
is "after SIGTERM the lock is given back" "$(locked; echo $?)" 1

start first ctl_forever lock job -- sleep 60; LOCKER=$PID; until_ok 5 locked
is "a second one on the same host does not get it" "$(ctl --wait=0 lock job -- echo mine 2>&1; echo $?)" "tenurectl: somebody else has the lock 'job'.
124"
start second ctl_forever lock job -- echo turn; SECOND=$PID
is "unlock takes it from nobody" "$(ctl unlock job 2>&1; echo $?)" "tenurectl: a command on this host has the lock 'job'.
124"
locked && ! grep -q turn "$DIR/second.log" && ok "nor may it" || not_ok "two have the lock" "$(cat "$DIR/second.log")"
kill $LOCKER; wait $LOCKER; wait $SECOND; is "the waiting command gets the lock" "$(cat "$DIR/second.log")" turn
start killed ctl_forever lock job -- sleep 60; LOCKER=$PID; until_ok 5 locked; kill -9 $LOCKER; wait $LOCKER 2>/dev/null
until_ok 5 sh -c "! pgrep -f '^[^ ]*tenurectl --bus=$BUS lock job -- sleep 60'"
start heir timeout 30 etcdctl --endpoints "127.0.0.1:$c" lock job -- echo heir; HEIR=$PID
is "SIGKILL leaves the lock with the place" "$(locked; echo $?)" 0
ctl unlock job; is "unlock gives it back" $? 0; wait $HEIR; is "after unlock the next one gets the lock" "$(cat "$DIR/heir.log")" heir
G=$(etcdctl --endpoints "127.0.0.1:$c" lease grant 60 | awk '{print $2}'); start other-lock2 timeout 30 etcdctl --endpoints "127.0.0.1:$c" lock job -- sleep 60; OTHER=$PID; until_ok 5 locked
is "--wait: another host's lock" "$(ctl --wait=100ms lock job -- echo mine 2>/dev/null; echo $?)" 124
start waiter ctl_forever lock job -- echo mine; LOCKER=$PID; until_ok 5 waiters 2; kill $LOCKER; wait $LOCKER; is "SIGTERM while it waits" $? 143
until_ok 5 waiters 1 && ok "leaves nothing behind" || not_ok "leaves nothing behind" "$(etcdctl --endpoints "127.0.0.1:$c" get job/ --prefix --keys-only)"
kill $OTHER; etcdctl --endpoints "127.0.0.1:$c" del --prefix job/ >/dev/null
is "tenurectl lock ends by the signal that ended its command" "$(BIN="$BIN" BUS="$BUS" /usr/bin/python3 -c 'import os, subprocess; print(subprocess.run([os.environ["BIN"] + "/tenurectl", "--bus=" + os.environ["BUS"], "lock", "job", "--", "sh", "-c", "kill -TERM $$"]).returncode)')" -15

# Memory is locked where the limit allows it.
L=$(lease); kill -USR1 $AGENT; wait $AGENT
case $BIN in
*asan*) skip "memory is locked" "the sanitizer does not let it" ;;
*) if (ulimit -l unlimited) 2>/dev/null; then
	ulimit -l unlimited; agent; until_ok 5 ctl status
	until_ok 5 grep -q 'VmLck:.*[1-9]' /proc/$AGENT/status && ok "memory is locked: $(awk '/VmLck|VmRSS/ {printf "%s %s kB ", $1, $2}' /proc/$AGENT/status)" || not_ok "memory is locked" "$(grep Vm /proc/$AGENT/status)"
	kill -USR1 $AGENT; wait $AGENT
else skip "memory is locked" "the limit cannot be raised here"; fi ;;
esac
agent; until_ok 5 ctl status

# A node that flaps is suppressed until an operator lets it in, also over a restart.
printf '[Steadiness]\nFlapLimit=2\nFlapWindow=1min\nFlapRest=1h\n' >>"$DIR/agent.conf"; kill -HUP $AGENT; until_ok 5 grep -q "FlapLimit= has changed" "$DIR/agent.log"
lose() { local l; l=$(lease); etcdctl --endpoints "127.0.0.1:$c" lease revoke "$l" >/dev/null; }
L=$(lease); lose; until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS status --json=short | jq '.State == \"held\" and .LeaseId != \"$L\"' | grep -q true" && ok "it loses its place, and joins again" || not_ok "it loses its place"
lose; until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS status | grep -q 'Suppressed: for 3[56].. s more, because it flapped'" && ok "and again: it stays out" || not_ok "it stays out" "$(ctl status)"
has "the log says so" "$(cat "$DIR/agent.log")" "2 times by now, so it stays out for 3600 s"
kill -USR1 $AGENT; wait $AGENT; agent
until_ok 5 sh -c "'$BIN/tenurectl' --bus=$BUS status | grep -q Suppressed" && ok "after a restart too" || not_ok "after a restart too" "$(ctl status)"
is "the agent has not joined" "$(call get-property $M State)" 's "joining"'
ctl join; until_ok 5 ctl status && ok "tenurectl join lets it in" || not_ok "tenurectl join lets it in"

# Most of the nodes gone at once: reported as gone, and as a mass failure.
G=$(etcdctl --endpoints "127.0.0.1:$c" lease grant 600 | awk '{print $2}')
{ echo; for i in 1 2 3 4 5; do echo "put --lease=$G /tenure/default/nodes/mass$i '{\"id\":\"i\"}'"; done; echo; echo; } | etcdctl --endpoints "127.0.0.1:$c" txn >/dev/null
mass() { [ "$(call get-property $M MassFailure)" = "b $1" ]; }
until_ok 5 sh -c "[ \$('$BIN/tenurectl' --bus=$BUS nodes --no-legend | grep -c '^[^ ]') = 6 ]"; mass false && ok "many nodes, no failure" || not_ok "many nodes"
etcdctl --endpoints "127.0.0.1:$c" lease revoke "$G" >/dev/null
until_ok 10 mass true && ok "most of them end: MassFailure" || not_ok "MassFailure" "$(ctl nodes)"
has "tenurectl status tells" "$(ctl status)" "most nodes have gone at once"
is "a mass failure is reported, and the nodes are gone" "$(ctl nodes --no-legend | grep -c '^[^ ]')" 1

# A thousand nodes, and a hundred programs that ask for all of them without end: no heartbeat waits for them.
crowd() { /usr/bin/python3 "$(dirname "$0")/crowd.py" "$c" "$@"; }
crowd nodes n 1000
until_ok 10 sh -c "[ \$('$BIN/tenurectl' --bus=$BUS status --json=short | jq .NNodes) = 1001 ]" || not_ok "a thousand nodes"
gap_of() { sed 's/.* gap \([0-9]*\) .*/\1/' <<<"$1"; }
L=$(lease); ONE=$("$LOAD" "$BUS" 1 1) MANY=$("$LOAD" "$BUS" 100 5)
has "a thousand nodes: ListNodes ($ONE)" "$ONE" "failed 0$"
has "a hundred callers ask without a pause ($MANY)" "$MANY" "failed 0$"
is "the lease is kept" "$(lease)" "$L"
if judges_time; then is "at most 1.5 s from one renewal to the next" "$(($(gap_of "$MANY") < 1500))" 1; fi
crowd gone

# Ten thousand nodes, and a hostile user without privileges: only that user has to wait.
crowd nodes m 10000
until_ok 20 sh -c "[ \$('$BIN/tenurectl' --bus=$BUS status --json=short | jq .NNodes) = 10001 ]" || not_ok "ten thousand nodes"
T=$(date +%s%N); is "tenurectl nodes with ten thousand" "$(ctl nodes --json=short | jq 'length, .[77].Name, .[77].TTLUSec' | tr '\n' ' ')" '10001 "m00077" 10000000 '; MS=$((($(date +%s%N) - T) / 1000000))
is "all nodes come in few pages ($MS ms in all)" "$(call --json=short call $M GetNodes ou /org/tenure/Membership1/node/m00076 2 | jq -r '.data[0][][1].Name.data' | tr '\n' ' ')" "m00077 m00078 "
has "a page behind what is no node" "$(call call $M GetNodes ou /nothing 2 2>&1)" "'/nothing' is neither '/' nor the path of a node"
objects() { timeout 60 busctl --address="$BUS" --timeout=60 --json=short call org.tenure.Membership1 /org/tenure/Membership1 org.freedesktop.DBus.ObjectManager GetManagedObjects; }
is "GetManagedObjects returns all objects of one moment" "$(objects | jq -r '.data[0] | length, (.["/org/tenure/Membership1/node/m00077"]["org.tenure.Membership1.Node"].Name.data)' | tr '\n' ' ')" "$((10001 + $(ctl services --no-legend | wc -l))) m00077 "
crowd services 10000; many() { [ "$(call get-property $M NServices | cut -d' ' -f2)" -ge 10000 ]; }; until_ok 20 many || not_ok "ten thousand services"
while read -r what n; do # one turn of the loop takes 16 messages
	if [ "$n" -ge 60 ]; then ok "$what of ten thousand leaves others their turns: $n of 120 behind it were answered first"; else not_ok "$what of ten thousand is written in one turn, or few" "$n of 120 behind it were answered first"; fi
done < <("$LOAD" "$BUS" between all | tee "$DIR/between.log")
is "all expensive calls leave others their turns" "$(wc -l <"$DIR/between.log")" 8
has "introspection of the nodes' parent lists them" "$(call call org.tenure.Membership1 /org/tenure/Membership1/node org.freedesktop.DBus.Introspectable Introspect)" '<node name=\\"m00077\\"/>.*</node>'
has "introspection of a service's parent lists its objects" "$(call introspect --xml-interface org.tenure.Membership1 /org/tenure/Membership1/service)" '<node name="crowd/m00077/_"/>'
has "and each listed node has an object" "$(call introspect org.tenure.Membership1 /org/tenure/Membership1/node/m00077)" "org.tenure.Membership1.Node"
start listing timeout 60 "$LOAD" "$BUS" listing 1000; LISTING=$PID; crowd one-by-one a 1000; wait $LISTING
has "a list, and what is announced after it, is whole" "$(cat "$DIR/listing.log")" "^[1-9][0-9]* lists, 0 that lack something$"
harm() { # a user without rights who means harm, for 6 s, and in $MANY how others fare meanwhile
	[ "$(id -u)" = 0 ] || { start hostile true; HOSTILE=$PID MANY=$("$LOAD" "$BUS" 1 5); return; }
	start hostile setpriv --reuid nobody --clear-groups "$PLAIN/bus_load" "$BUS" hostile 6; HOSTILE=$PID
	until_ok 5 sh -c "[ \$(pgrep -P $HOSTILE -c) = 10 ]"
	MANY=$("$LOAD" "$BUS" 1 5)
}
L=$(lease)
harm
R=$(etcdctl --endpoints "127.0.0.1:$c" put /elsewhere x -w json | jq .header.revision)
is "root can wait for a revision meanwhile" "$([ "$(ctl wait-revision "$R")" -ge "$R" ] && echo yes)" yes
wait $HOSTILE
if [ "$(id -u)" != 0 ]; then skip "a user cannot have more waiting calls than the limit" "needs root, to call as somebody else"; else
	has "a user cannot have more waiting calls than the limit" "$(sort "$DIR/hostile.log" | tr '\n' ' ')" "waits: (74[4-9]|7[5-9].|[89]..) refused"
fi
is "the lease is kept" "$(lease)" "$L"
TURN=$(ctl describe | jq '.loop.longest_turn_usec / 1000 | floor')
has "ten thousand nodes, and one who means harm: others are answered ($MANY; no turn longer than $TURN ms)" "$MANY" "failed 0$"
if judges_time; then is "and at most 1.5 s pass from one renewal to the next" "$(($(gap_of "$MANY") < 1500))" 1; fi
crowd gone
until_ok 20 sh -c "[ \$('$BIN/tenurectl' --bus=$BUS status --json=short | jq .NNodes) -lt 3 ]" && ok "and they go" || not_ok "and they go"; ctl join; until_ok 10 ctl status

# The core goes: jeopardy, lost, and back, without anybody's help.
kill $AGENT; wait $AGENT; agent --ttl 32s; until_ok 10 ctl status
start locker2 ctl_forever lock job -- sh -c 'trap "echo told; exit 5" TERM; echo ready; while :; do sleep 0.05; done'; LOCKER=$PID; until_ok 20 grep -q ready "$DIR/locker2.log"
kill -STOP $(pgrep -f "$DIR/core ")
until_ok 40 grep -q told "$DIR/locker2.log" && ok "tenurectl lock: the command is told before the place is lost" || not_ok "tenurectl lock: the command is told" "$(cat "$DIR/locker2.log")"
# It is told an eighth of the TTL before the deadline, a moment before the agent calls that jeopardy.
has "the command was told while the place was still held" "$(call get-property $M State)" '"(held|jeopardy)"'
until_ok 20 sh -c "[ \$('$BIN/tenurectl' --bus=$BUS status --json=short | jq -r .State) = joining ]" && ok "the core is silent: it gives up by itself" || not_ok "it gives up"
is "A46: status tells with its exit code" "$(ctl status >/dev/null; echo $?)" 2
has "the log says that the place is lost" "$(cat "$DIR/agent.log")" "Node web1 lost its place"
kill -CONT $(pgrep -f "$DIR/core ")
wait $LOCKER; is "tenurectl lock ends with 123" $? 123
until_ok 10 ctl status && ok "the core is back: it holds a place again" || not_ok "it comes back"

kill $AGENT; wait $AGENT; is "SIGTERM ends with 0" $? 0
is "after SIGTERM the node's key is deleted" "$(etcdctl --endpoints "127.0.0.1:$c" get /tenure/default/nodes/web1)" ""

# TLS to the core, both ways.
make_certificates
start tls-core "$BIN/tenure-core" --name y --data-dir "$DIR/tls" --listen-client-urls "https://127.0.0.1:$s" --listen-peer-urls "http://127.0.0.1:$sp" \
	--cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --trusted-ca-file "$DIR/ca.pem" --client-cert-auth
start tls-agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" CREDENTIALS_DIRECTORY="$DIR" "$BIN/tenured" -c "$DIR/agent.conf" --endpoints "https://127.0.0.1:$s" \
	--cert-file cert.pem --key-file key.pem --trusted-ca-file "$DIR/ca.pem" --ttl 12s
until_ok 10 ctl status && ok "an agent over mutual TLS, its key a credential" || not_ok "an agent over mutual TLS" "$(tail -n 2 "$DIR/tls-agent.log")"

renewals() { call get-property $M DeadlineUSec | cut -d' ' -f2; }
renewed() { [ "$(renewals)" -gt $(($1 + 3000000)) ]; }
BEFORE=$(ctl status --json=short | jq .LeaseId)
make_certificates ec ec_paramgen_curve:prime256v1
kill -HUP "$(pgrep -f "$DIR/tls ")" "$(pgrep -f "endpoints https://127.0.0.1:$s")"
until_ok 5 grep -q "certificates were reloaded" "$DIR/tls-core.log"; until_ok 5 grep -q "certificates were reloaded" "$DIR/tls-agent.log" && ok "SIGHUP: the agent reads its certificates again" || not_ok "SIGHUP: the agent reads its certificates again"
pid=$(pgrep -f "$DIR/tls "); kill -9 "$pid"; wait "$pid" 2>/dev/null
start tls-core "$BIN/tenure-core" --name y --data-dir "$DIR/tls" --listen-client-urls "https://127.0.0.1:$s" --listen-peer-urls "http://127.0.0.1:$sp" \
	--cert-file "$DIR/cert.pem" --key-file "$DIR/key.pem" --trusted-ca-file "$DIR/ca.pem" --client-cert-auth
at=$(renewals); until_ok 20 renewed "$at" && ok "and goes on with them once it has to connect again" || not_ok "and goes on with them" "$(tail -n 2 "$DIR/tls-agent.log")"
is "the place is kept meanwhile" "$(ctl status --json=short | jq .LeaseId)" "$BEFORE"
pkill -P $$ -f "endpoints https://127.0.0.1:$s"

# A core that greets late, as one does to which thousands of hosts come back at once.
cat >"$DIR/late.py" <<'END'
import asyncio, sys
async def late(r, w):
    core_r, core_w = await asyncio.open_connection("127.0.0.1", int(sys.argv[2]))
    async def pass_on(r, w, after):
        while data := await r.read(65536):
            await asyncio.sleep(after)
            after = 0
            w.write(data)
        w.close()
    await asyncio.gather(pass_on(r, core_w, 0), pass_on(core_r, w, 1.5), return_exceptions=True)
async def main():
    await (await asyncio.start_server(late, "127.0.0.1", int(sys.argv[1]))).serve_forever()
asyncio.run(main())
END
read -r late < <(free_ports 1)
start late /usr/bin/python3 "$DIR/late.py" "$late" "$s"
start late-agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" CREDENTIALS_DIRECTORY="$DIR" "$BIN/tenured" -c "$DIR/agent.conf" --endpoints "https://127.0.0.1:$late" \
	--node-name late --cert-file cert.pem --key-file key.pem --trusted-ca-file "$DIR/ca.pem" --ttl 10s; LATE=$PID
until_ok 15 grep -q "Node late holds its place" "$DIR/late-agent.log" && ok "a core that greets late" || not_ok "a core that greets late" "$(tail -n 2 "$DIR/late-agent.log")"
kill "$LATE"; wait "$LATE"

# Why there is no place stands in the log, and in STATUS=.
nowhere() { # NAME ENDPOINT WHY OPTION...
	local name=$1 at=$2 why=$3
	shift 3
	start "$name" env DBUS_SYSTEM_BUS_ADDRESS="$BUS" CREDENTIALS_DIRECTORY="$DIR" NOTIFY_SOCKET="$PLAIN/notify" "$BIN/tenured" -c "$DIR/agent.conf" \
		--endpoints "$at" --node-name "$name" --ready-after 3s "$@"
	until_ok 15 grep -qE "No place yet after 3 s: $at: $why; still trying" "$DIR/$name.log" && until_ok 5 grep -qE "STATUS=Joining cluster default as $name: $at: $why" "$DIR/notify.log" \
		&& ok "why there is no place: $why" || not_ok "why there is no place: $why" "$(tail -n 2 "$DIR/$name.log")"
	kill "$PID"; wait "$PID"
}
nowhere closed http://127.0.0.1:1 "Connection refused"
nowhere stranger "https://127.0.0.1:$s" ".*certificate.*" --trusted-ca-file /etc/ssl/certs/ca-certificates.crt

has "a certificate that ends within three weeks" "$(cat "$DIR/tls-agent.log")" "CertFile=cert.pem expires on 20[0-9-]+, (within a day|in 1 day|in 2 days): renew it"
is "the core tells of its own: at its start, twice, and when it has been read again" "$(grep -cE -- "The certificate of --cert-file expires on 20[0-9-]+, (within a day|in 1 day|in 2 days): renew it.* clients will refuse to talk" "$DIR/tls-core.log")" 3

# Drop-ins come after the file; errors in them name their file, too.
mkdir "$DIR/agent.conf.d" && printf '[Agent]\nTTL=7s\n' >"$DIR/agent.conf.d/10-ttl.conf"
has "a drop-in" "$("$BIN/tenured" -t -c "$DIR/agent.conf")" "^TTL=7s"
printf '[Agent]\nTLT=7s\n' >"$DIR/agent.conf.d/20-ttl.conf"
is "a drop-in with an error" "$("$BIN/tenured" -t -c "$DIR/agent.conf" 2>&1)" "tenured: $DIR/agent.conf.d/20-ttl.conf:2: unknown key 'TLT' in [Agent]."
rm -r "$DIR/agent.conf.d"

# Settings that cannot be.
printf '[Agent]\nTTL=2 parsecs\n' >"$DIR/bad.conf"
is "a wrong line" "$("$BIN/tenured" -c "$DIR/bad.conf" 2>&1)" "tenured: $DIR/bad.conf:2: TTL= must be a time from 100ms to 24h such as 500ms or 10s, not '2 parsecs'."
has "a wrong endpoint" "$("$BIN/tenured" -c "$DIR/agent.conf" --endpoints nonsense 2>&1)" "'nonsense' is not a URL"
for p in tenured tenure-core; do
	is "$p.conf(5) has every setting" "$("$BIN/$p" --help=conf | sed -n 's/^Fl -\([a-z-]*\) .*/\1/p; s/^\.Fl -\([a-z-]*\) .*/\1/p' | sort | tr '\n' ' ')" \
		"$("$BIN/$p" --help | sed -n 's/^  --\([a-z-]*\) .*/\1/p' | sort | tr '\n' ' ')"
done
has "a missing file" "$("$BIN/tenured" -c /nonexistent.conf 2>&1)" "/nonexistent.conf: cannot read: No such file"
"$BIN/tenured" -t -c "$DIR/agent.conf" >"$DIR/a.conf" && "$BIN/tenured" -t -c "$DIR/a.conf" >"$DIR/b.conf"
is "printed settings, read again, print the same" "$(cat "$DIR/a.conf")" "$(cat "$DIR/b.conf")"
finish
