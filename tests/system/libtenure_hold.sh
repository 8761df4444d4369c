#!/usr/bin/env bash
# What a program may act by, with libtenure: its host's place, as the agent tells of it, and a lease of its own, on three replicas
# of tenure-core or on a real etcd (ENGINE=etcd).
# usage: BIN=build/release/bin DIR=build/libtenure-hold [ENGINE=etcd] tests/system/libtenure_hold.sh [CASE...]
. "$(dirname "$0")/lib.sh"
wants_plain
ENGINE=${ENGINE:-core}
CASES=${*:-sealed file own lock stale late examples rights}
SO=$(realpath "$BIN/../so") HERE=$(realpath "$(dirname "$0")")
gcc -Wall -Wextra -Werror -g -o "$DIR/tie" "$HERE/tie.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure -Wl,-rpath,"$SO" || { not_ok "tie.c builds"; finish; exit 1; }

# The core: $URLS; etcdctl at its first member.
if [ "$ENGINE" = etcd ]; then
	wants_etcd "libtenure on a real etcd"
	read -r c p < <(free_ports 2)
	URLS=http://127.0.0.1:$c
	start_etcd core "$c" "$p"
	CORES=("$PID")
else
	read -r c c2 c3 p p2 p3 < <(free_ports 6)
	URLS=http://127.0.0.1:$c,http://127.0.0.1:$c2,http://127.0.0.1:$c3 CORES=()
	all=core1=http://127.0.0.1:$p,core2=http://127.0.0.1:$p2,core3=http://127.0.0.1:$p3
	for i in 1 2 3; do
		cc=c${i#1} pp=p${i#1}
		start_replica "core$i" "${!cc}" "${!pp}" --initial-cluster "$all"
		CORES+=("$PID")
	done
fi
E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
lease_of() { printf '%x\n' "$(E get "$1" -w fields | awk '/^"Lease"/ {print $3}')"; }
until_ok 20 E get x || { not_ok "the core serves" "$(tail -n 3 "$DIR"/core*.log)"; finish; exit 1; }

# tie NAME ARGUMENT... [-- VARIABLE=VALUE...]: one that is driven by `to NAME LINE`; its output is $DIR/NAME.out, its process $PID.
tie() {
	local name=$1 args=()
	shift
	while [ $# -gt 0 ] && [ "$1" != -- ]; do args+=("$1"); shift; done
	[ $# = 0 ] || shift
	rm -f "$DIR/$name.in"; mkfifo "$DIR/$name.in"; : >"$DIR/$name.out"
	env "$@" "$DIR/tie" "${args[@]}" <>"$DIR/$name.in" >>"$DIR/$name.out" 2>&1 &
	PID=$!
	PIDS+=("$PID")
}
to() { local name=$1; shift; echo "$*" >"$DIR/$name.in"; }
out() { cat "$DIR/$1.out"; }
# hears NAME SECONDS PATTERN: a line of it, after what was read by `mark NAME`.
declare -A MARK
mark() { MARK[$1]=$(wc -l <"$DIR/$1.out"); }
since() { tail -n "+$((${MARK[$1]:-0} + 1))" "$DIR/$1.out"; }
since_has() { since "$1" | grep -qE -- "$2"; }
hears() { if until_ok "$2" since_has "$1" "$3"; then ok "$4"; else not_ok "$4" "$(since "$1" | tail -n 5 | tr '\n' '|')"; fi; }
# asks NAME LINE: its answer, one line.
asks() {
	local n
	n=$(grep -c "^${2%% *}: " "$DIR/$1.out")
	to "$@"
	until_ok 5 more_than "$1" "${2%% *}" "$n" || { echo "no answer"; return; }
	grep "^${2%% *}: " "$DIR/$1.out" | tail -n 1 | sed "s/^[^ ]* //"
}
more_than() { [ "$(grep -c "^$2: " "$DIR/$1.out")" -gt "$3" ]; }
# may_go_on NAME TTL_MS WHAT: its agent tells it nothing any more; it may act until a deadline that is a TTL away at the most.
may_go_on() {
	local left what="$3: a deadline, after a TTL at the most"
	left=$(asks "$1" holds)
	[[ $left =~ ^(-1|[0-9]+)$ ]] || { not_ok "$what" "$left"; return; }
	is "$what" "$((left <= $2))" 1 # -1: it has passed, on a busy machine
	[ "$left" = -1 ] || sleep "$(printf '%d.%03d' $((left / 1000)) $((left % 1000)))"
	is "$3: at which the answer is no" "$(asks "$1" act)" no
}
# Whether the agent's page is written within so many seconds, as inotify(7) has it.
modified() {
	/usr/bin/python3 - "$AGENT" "$1" <<'END'
import ctypes, glob, os, select, sys
page = [p for p in glob.glob(f"/proc/{sys.argv[1]}/fd/*") if os.path.basename(os.readlink(p)).startswith(("tenancy", "memfd:tenancy"))][0]
libc = ctypes.CDLL(None)
watch = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(watch, page.encode(), 2) >= 0
print("yes" if select.select([watch], [], [], float(sys.argv[2]))[0] else "no")
END
}
says() { [ "$(asks "$1" "$2")" = "$3" ]; }
end() { kill -9 "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
now_ms() { echo $(($(date +%s%N) / 1000000)); }

ID=0123456789abcdef0123456789abcdef
BUS=unix:path=$PLAIN/bus.socket
cat >"$DIR/bus.conf" <<END
<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig><type>session</type><listen>$BUS</listen><auth>EXTERNAL</auth><policy context="default">
<allow user="*"/><allow send_destination="*" eavesdrop="true"/><allow eavesdrop="true"/><allow own="*"/></policy></busconfig>
END
bus() { rm -f "$PLAIN/bus.socket"; start bus dbus-daemon --config-file="$DIR/bus.conf" --nofork --nopidfile; BUSPID=$PID; until_ok 5 busctl --address="$BUS" list; }
printf '[Agent]\nEndpoints=%s\nNodeName=web1\nNodeId=%s\nTTL=2s\nServicesPath=%s\n' "$URLS" $ID "$DIR/services.d" >"$DIR/agent.conf"
mkdir "$DIR/run"
# agent [VARIABLE=VALUE...]
agent() { start agent env DBUS_SYSTEM_BUS_ADDRESS="$BUS" "$@" "$BIN/tenured" -c "$DIR/agent.conf"; AGENT=$PID; }
with_bus=DBUS_SYSTEM_BUS_ADDRESS=$BUS

# page_of PID: its page, as /proc/locks has it.
page_of() {
	local fd
	fd=$(find "/proc/$1/fd" -lname '*tenancy*' | head -n 1)
	echo "OFDLCK .*READ .*:$(stat -Lc %i "$fd") "
}

case_agent() {
	local kind=$1 run=(RUNTIME_DIRECTORY="$DIR/run") began
	# With a page that can be mapped, or one that must be read.
	[ "$kind" = sealed ] && run=()
	MARK=()
	# Whatever comes first: the program, the bus, the agent.
	rm -f "$PLAIN/bus.socket"
	tie a agent -- "$with_bus"; local A=$PID
	is "$kind: without a bus nothing is held" "$(asks a act)" no
	has "$kind: and why" "$(asks a error)" "cannot connect to the system bus"
	bus
	is "$kind: without an agent neither" "$(asks a act)" no
	agent "${run[@]}"
	hears a 10 '^held [0-9a-f]+ ' "$kind: the agent came, and holds"
	is "$kind: then the program may act" "$(asks a act)" yes
	local L; L=$(asks a lease)
	is "$kind: by the agent's lease" "$L" "$(printf '%x' "$(busctl --address="$BUS" get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager LeaseId | awk '{print $2}')")"
	is "$kind: no connection to the core is made" "$(ss -tnpH state established 2>/dev/null | grep -c "pid=$A,")" 0
	if [ "$kind" = sealed ]; then
		is "$kind: the page is mapped" "$(grep -c 'memfd:tenancy' "/proc/$A/maps")" 1
	else
		is "$kind: a file that may shrink is not mapped" "$(grep -c tenancy "/proc/$A/maps")" 0
	fi
	is "$kind: each renewal is reported to who watches the page" "$(modified 10)" yes
	# Registered by the agent.
	is "$kind: it registers" "$(asks a 'register cache 11211 role=primary')" ok
	until_ok 5 sh -c "ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/services/cache/web1 --print-value-only | jq -e '.port == 11211 and .tags.role == \"primary\"'" && ok "$kind: and the core has it" || not_ok "$kind: and the core has it" "$(asks a error)"

	# The bus goes away and comes back: the place stays held, and services are registered again.
	mark a
	end $BUSPID; bus
	until_ok 10 busctl --address="$BUS" get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager State
	until_ok 10 sh -c "ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/services/cache/web1 --print-value-only | jq -e '.port == 11211'" && ok "$kind: a bus that was restarted: it is registered again" || not_ok "$kind: registered again" "$(asks a error)"
	is "$kind: and nothing was lost" "$(since a | grep -c '^lost')" 0
	is "$kind: it unregisters" "$(asks a 'unregister cache')" ok
	until_ok 5 sh -c "[ -z \"\$(ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/services/cache --prefix)\" ]" && ok "$kind: and the core has it no more" || not_ok "$kind: and the core has it no more"

	# The agent is frozen beyond its deadline: no at the deadline, with nobody to tell; yes again when it is back in time.
	mark a
	kill -STOP $AGENT
	may_go_on a 2000 "$kind: a frozen agent"
	hears a 4 '^jeopardy' "$kind: a frozen agent: jeopardy"
	hears a 4 '^lost .*no renewal' "$kind: a frozen agent: lost at its deadline"
	is "$kind: and the answer is no" "$(asks a act)" no
	kill -CONT $AGENT
	hears a 10 '^held' "$kind: it goes on: held again"

	# Killed, and back in time: if the page is kept, nobody notices; otherwise another life begins.
	mark a; began=$(now_ms)
	end $AGENT; agent "${run[@]}"
	if [ "$kind" = sealed ]; then
		hears a 10 '^held' "$kind: an agent that begins anew"
		has "$kind: is another life" "$(since a | tr '\n' ' ')" "(^| )lost .*held "
	else
		until_ok 10 busctl --address="$BUS" get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager State
		took=$(($(now_ms) - began)) began=$(now_ms)
		while [ $(($(now_ms) - began)) -lt 2500 ]; do is_yes=$(asks a act); [ "$is_yes" = yes ] || break; sleep 0.05; done
		if [ "$is_yes $(since a | grep -c '^lost')" != "yes 0" ] && [ $took -ge 700 ]; then
			skip "$kind: killed and restarted: it may act all the time" "it took $took ms to come back, and its place ends after 1000 to 2000"
			hears a 10 '^held' "$kind: it holds again"
		else
			is "$kind: killed and restarted: it may act all the time" "$is_yes $(since a | grep -c '^lost')" "yes 0"
		fi
		is "$kind: by the same lease" "$(asks a lease)" "$(lease_of /tenure/default/nodes/web1)"
	fi

	# The page is cut off, or taken away.
	if [ "$kind" = file ]; then
		mark a
		kill -STOP $AGENT # it would write the page again with its next renewal
		: >"$DIR/run/tenancy"
		is "$kind: a page that is cut off says no at once" "$(asks a act)" no
		kill -CONT $AGENT
		hears a 10 '^lost .*cannot be read' "$kind: which is told"
		hears a 10 '^held' "$kind: until the agent writes it again"
		rm "$DIR/run/tenancy"; mark a
		end $AGENT; agent "${run[@]}"
		until_ok 5 test -s "$DIR/run/tenancy"
		until_ok 5 says a act yes; sleep 2.2
		is "$kind: a page that was taken away: the next agent's is found" "$(asks a act)" yes
	fi

	# The place is given back: programs are told, and the agent waits for those that have not reacted yet.
	sed -i s/TTL=2s/TTL=10s/ "$DIR/agent.conf"; kill -TERM $AGENT; wait $AGENT; mark a; agent "${run[@]}" # time to look
	hears a 10 '^held' "$kind: by a longer lease"
	mark a
	kill -STOP "$A"; kill -TERM $AGENT; sleep 0.5
	is "$kind: who is in the middle of something is waited for" "$(kill -0 $AGENT 2>/dev/null && E get /tenure/default/nodes/web1 --keys-only | head -n 1)" /tenure/default/nodes/web1
	page=$(page_of "$A")
	is "$kind: by a lock on the page" "$(grep -c "$page" /proc/locks)" 1
	kill -CONT "$A"
	hears a 3 '^lost .*gives its place back' "$kind: the place is given back: told"
	until_ok 1 sh -c "! grep -q '$page' /proc/locks" && ok "$kind: and let go, once that was taken" || not_ok "$kind: and let go"
	wait $AGENT
	is "$kind: the answer is no" "$(asks a act)" no
	sed -i s/TTL=10s/TTL=2s/ "$DIR/agent.conf"; agent "${run[@]}"
	hears a 10 '^held' "$kind: an agent that comes back"
	mark a
	is "$kind: tenure_leave()" "$(asks a leave)" ok
	hears a 2 '^lost .*given back' "$kind: which is told"
	is "$kind: the host's place stays" "$(E get /tenure/default/nodes/web1 --keys-only | head -n 1)" /tenure/default/nodes/web1

	# Follows where the agent is.
	tie f none -- "$with_bus"; local F=$PID
	hears f 10 '^synced' "$kind: who has no endpoints asks the agent's"
	end "$F"

	# An agent that dies, and stays dead.
	tie b agent -- "$with_bus"; local B=$PID
	hears b 5 '^held' "$kind: another program"
	mark b
	end $AGENT
	may_go_on b 2000 "$kind: an agent that stays dead"
	hears b 4 '^lost' "$kind: an agent that stays dead: lost at its deadline"
	is "$kind: and the answer is no" "$(asks b act)" no
	to a quit; end "$B"; end "$A"; end $BUSPID
}

case_own() {
	MARK=()
	tie a own:2000:alpha -- TENURE_ENDPOINTS="$URLS"; local A=$PID
	hears a 10 '^held' "own: held"
	is "own: the holder may act" "$(asks a act)" yes
	asks a 'lock forks mine' >/dev/null; hears a 5 '^locked' "own: with a lock"
	is "own: a child of the program may not" "$(asks a child)" "no no"
	is "own: the fork does not affect the program" "$(asks a act) $(asks a has | cut -d' ' -f1)" "yes yes"
	has "own: its key says who it is" "$(E get /tenure/default/sessions/alpha --print-value-only)" '"name":"alpha".*"tags":\{"host":"[^"]+","pid":"[0-9]+","program":"tie"\}'
	is "own: the key is on the tie's lease" "$(lease_of /tenure/default/sessions/alpha)" "$(asks a lease)"
	asks a 'register cache 11211 role=primary' >/dev/null
	until_ok 5 sh -c "ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/services/cache/alpha --print-value-only | jq -e '.port == 11211'" && ok "own: it registers" || not_ok "own: it registers"
	tie b own:2000:alpha -- TENURE_ENDPOINTS="$URLS"; local B=$PID
	hears b 5 "^lost 0 the session 'alpha' is held by another program .*pid=$A" "own: a name that is taken"
	is "own: no" "$(asks b act)" no
	is "own: the program leaves" "$(asks a leave)" ok
	is "own: after leaving it may not act" "$(asks a act)" no
	hears a 3 '^lost .*given back' "own: which is told"
	hears b 6 '^held' "own: the next one has the name"
	tie d own:30000:beta -- TENURE_ENDPOINTS="$URLS"; local D=$PID; hears d 5 '^held' "own: a long TTL"
	tie e own:30000:beta -- TENURE_ENDPOINTS="$URLS"; local F=$PID; hears e 5 '^lost' "own: and one who waits for its name"
	to d leave; hears e 3 '^held' "own: who has it as soon as it is given back"
	mark e; to e leave; hears e 3 '^lost .*given back' "own: and gives it back" # the cases that follow count sessions
	end "$D"; end "$F"
	until_ok 3 sh -c "[ -z \"\$(ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/services/cache --prefix)\" ]" && ok "own: with the lease the service went" || not_ok "own: with the lease the service went"
	# The core goes: at the deadline it is lost, without anybody's word.
	mark b
	kill -STOP "${CORES[@]}"
	hears b 4 '^jeopardy' "own: a core that says nothing: jeopardy"
	hears b 4 '^lost' "own: a core that says nothing: lost"
	kill -CONT "${CORES[@]}"
	hears b 10 '^held' "own: and held again"
	end "$A"; end "$B"
}

# Who has the lock, in the order of asking; no two at once, tokens rise.
case_lock() {
	MARK=()
	local i
	export TENURE_ENDPOINTS=$URLS
	tie k own:3000; local K=$PID
	hears k 10 '^held' "lock: a first holder"
	asks k "lock jobs first" >/dev/null
	hears k 5 '^locked' "lock: it has it"
	has "lock: the key is as tenurectl and etcdctl make it" "$(E get jobs/ --prefix | tr '\n' ' ')" "^jobs/$(asks k lease) first $"
	mark k; E del "jobs/$(asks k lease)" >/dev/null
	hears k 5 '^unlocked .*its key was deleted' "lock: its key is deleted by hand: told"
	hears k 5 '^locked' "lock: and it stands in line again"
	# Behind one of etcdctl's, and before one.
	mark k; to k unlock; hears k 5 '^unlocked .*given back' "lock: given back"
	start other timeout 20 etcdctl --endpoints "127.0.0.1:$c" lock jobs -- sh -c "echo has it; until [ -e '$DIR/enough' ]; do sleep 0.05; done"
	until_ok 5 grep -q "has it" "$DIR/other.log"
	mark k; asks k "lock jobs" >/dev/null
	sleep 0.4; is "lock: behind etcdctl lock" "$(since k | grep -c '^locked')" 0; : >"$DIR/enough"
	hears k 5 '^locked' "lock: and then it has it"
	start another timeout 20 etcdctl --endpoints "127.0.0.1:$c" lock jobs -- echo has it too
	sleep 0.4; is "lock: etcdctl lock behind it" "$(grep -c too "$DIR/another.log")" 0
	mark k; to k unlock; until_ok 5 grep -q too "$DIR/another.log" && ok "lock: and then etcdctl has it" || not_ok "lock: and then etcdctl has it" "$(cat "$DIR/another.log")"
	# Waiting is given up.
	mark k; asks k "lock line" >/dev/null; hears k 5 '^locked' "lock: one before"
	tie w own:3000; local W=$PID; hears w 5 '^held' "lock: one who waits"; asks w "lock line" >/dev/null
	until_ok 5 sh -c "[ \$(ETCDCTL_API=3 etcdctl --endpoints $URLS get line/ --prefix --keys-only | grep -c line) = 2 ]"
	mark w; to w unlock; hears w 5 '^unlocked' "lock: gives up"
	is "lock: and its key is gone" "$(E get line/ --prefix --keys-only | grep -c line)" 1
	end "$W"
	# Twenty waiters; some are killed or frozen while they hold the lock or wait.
	local n=20 pids=()
	for ((i = 1; i <= n; i++)); do
		tie l$i own:8000; pids[i]=$PID
		hears l$i 10 '^held' "lock: waiter $i holds" >/dev/null
		asks l$i "lock line" >/dev/null
		until_ok 5 sh -c "[ \$(ETCDCTL_API=3 etcdctl --endpoints $URLS get line/ --prefix --keys-only | grep -c line) -ge $((i + 1)) ]"
	done
	to k unlock
	local last=0 order= t
	for ((i = 1; i <= n; i++)); do
		[ $i = 12 ] && continue
		until_ok 30 grep -q '^locked' "$DIR/l$i.out" || { not_ok "lock: waiter $i has its turn"; break; }
		t=$(awk '/^locked/ {print $NF}' "$DIR/l$i.out")
		[ "$t" -gt "$last" ] || not_ok "lock: tokens rise" "$t after $last"
		last=$t order+="$i "
		[ "$(grep -l '^locked' "$DIR"/l*.out | wc -l)" = "$(wc -w <<<"$order")" ] || not_ok "lock: nobody has it out of turn" "$(grep -l '^locked' "$DIR"/l*.out | tr '\n' ' ')"
		case $i in
		7) end "${pids[7]}"; continue ;; # it is not given back: it expires
		11) kill -STOP "${pids[12]}" ;; # the next one; while it waits
		esac
		to l$i unlock
	done
	is "lock: 20 waiters have it in order, behind one who died with it, too, but for one who is frozen" "$order" "1 2 3 4 5 6 7 8 9 10 11 13 14 15 16 17 18 19 20 "
	kill -CONT "${pids[12]}"
	hears l12 20 '^locked' "lock: the frozen one stands in line again, and has it last"
	for ((i = 1; i <= n; i++)); do end "${pids[i]}"; done
	end "$K"
}

# A program that is refused deletes the key that it has created: the key would block others for as long as the program lives.
case_rights() {
	MARK=()
	export TENURE_ENDPOINTS=$URLS
	E user add root:root >/dev/null; E role add root >/dev/null; E user grant-role root root >/dev/null
	E user add few:few >/dev/null; E role add few >/dev/null; E user grant-role few few >/dev/null
	E role grant-permission few --prefix=true readwrite /tenure/default/sessions/ >/dev/null
	E role grant-permission few readwrite narrow/ narrow/g >/dev/null # any lease's key, and not all that begins so
	E auth enable >/dev/null || not_ok "rights: users are asked for" "$(E auth status)"
	E() { timeout 5 etcdctl --endpoints "$URLS" --user root:root "$@"; }
	tie few own:20000:few -- TIE_USER=few TIE_PASSWORD=few; local F=$PID
	hears few 10 '^held' "rights: one that may not look at the lock holds its lease"
	asks few "lock narrow" >/dev/null
	hears few 10 '^unlocked .*permission denied' "rights: it is refused"
	tie root own:20000:root -- TIE_USER=root TIE_PASSWORD=root; local R=$PID
	hears root 10 '^held' "rights: another one holds its lease"
	asks root "lock narrow" >/dev/null
	hears root 5 '^locked' "rights: and has the lock"
	is "rights: while the first one lives" "$(asks few act)" yes
	mark few; to few unlock; hears few 5 '^unlocked .*given back' "rights: which gives up"
	end "$F"; end "$R"
	E auth disable >/dev/null
	E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
}

# acts_by NAME LEASE: it may act by a lease that has ended: before it holds another one, or because it says that it holds this one
# again. With another lease it may: on a busy machine that one is granted before the last of what it was asked is read.
acts_by() { since "$1" | awk -v lease="$2" '/^held / {if ($2 == lease) bad = 1; exit} /^act: yes/ {bad = 1; exit} END {exit !bad}'; }

# The same of what it wrote.
wrote_late() { since "$1" | awk '/^held / {exit} /^put: Success/ {bad = 1; exit} END {exit !bad}'; }

# writes NAME WORD: with success; who is granted another lease just then has another try.
writes() { mark "$1"; echo "put guarded $1-$2" >"$DIR/$1.in"; until_ok 5 since_has "$1" '^put: ' && since_has "$1" '^put: Success'; }

# One that is stopped past its TTL goes on: it may not act, at once, and what it writes is refused.
case_stale() {
	MARK=()
	local rounds=${ROUNDS:-200} i bad=0 late=0 refused=0 n=40 pids=() leases=()
	export TENURE_ENDPOINTS=$URLS
	for ((i = 0; i < n; i++)); do tie s$i own:2000; pids[i]=$PID; done
	for ((i = 0; i < n; i++)); do hears s$i 10 '^held' "stale: $i" >/dev/null; done
	for ((r = 0; r < rounds; r += n)); do
		for ((i = 0; i < n; i++)); do
			until_ok 10 says s$i act yes || { not_ok "stale: holds again" "$(tail -n 3 "$DIR/s$i.out")"; finish; exit 1; }
			until_ok 10 writes s$i $r || { bad=$((bad + 1)); not_ok "stale: what a holder writes" "$(tail -n 1 "$DIR/s$i.out")"; }
			leases[i]=$(asks s$i lease)
			kill -STOP "${pids[i]}"
			# Before it looks at anything else: is it allowed to? And what it would write.
			printf 'act\nput guarded late-%s-%s\nact\n' $i $r >"$DIR/s$i.in"
			mark s$i
		done
		until_ok 15 sh -c "[ -z \"\$(ETCDCTL_API=3 etcdctl --endpoints $URLS get /tenure/default/sessions/ --prefix --keys-only)\" ]" || not_ok "stale: their leases end"
		for ((i = 0; i < n; i++)); do kill -CONT "${pids[i]}"; done
		for ((i = 0; i < n; i++)); do
			until_ok 5 sh -c "tail -n +$((MARK[s$i] + 1)) '$DIR/s$i.out' | grep -c '^act' | grep -q 2"
			if acts_by s$i "${leases[i]}"; then bad=$((bad + 1)); not_ok "stale: one who was stopped may act" "$(since s$i | tr '\n' '|')"; fi
			until_ok 5 since_has s$i '^put: ' || not_ok "stale: a late write has an outcome" "$(since s$i | tr '\n' '|')"
			if wrote_late s$i; then late=$((late + 1)); not_ok "stale: a late write is taken" "$(since s$i | tr '\n' '|')"; fi
			since s$i | grep -q '^put: Stale' && refused=$((refused + 1))
		done
	done
	is "stale: $rounds times stopped beyond the TTL: none may act" "$bad" 0
	# On a busy machine some have a new lease before they read what they are to write: by that they may.
	is "stale: no write by the ended lease was accepted" "$late" 0
	[ $refused -ge $((rounds * 3 / 4)) ] && ok "stale: most write too late" || not_ok "stale: most write too late" "$refused of $rounds"
	for ((i = 0; i < n; i++)); do end "${pids[i]}"; done
}

# Two programs want one place. The one that has it decides on a write and is stopped before it has sent it, until the other one
# has the place and has written; then it goes on, and its write comes to the core, too late. LATE=1000: so often, at the least.
# Where the machine is so busy that a place is lost before anybody was stopped, that time does not count.
case_late() {
	MARK=()
	local times=${LATE:-40} n=10 i r other tried=0 refused=0 unsent=0 written=0 kept=0 pids=() who=() on=()
	export TENURE_ENDPOINTS=$URLS
	for ((i = 0; i < n; i++)); do
		tie p$i-0 own:2000:seat$i; pids[2 * i]=$PID; who[i]=0
		hears p$i-0 20 '^held' "late: $i" >/dev/null
		tie p$i-1 own:2000:seat$i; pids[2 * i + 1]=$PID
		hears p$i-1 20 '^lost .*is held by another program' "late: the second of $i" >/dev/null
	done
	for ((r = 0; tried < times && r < times; r++)); do
		for ((i = 0; i < n; i++)); do
			mark p$i-0; mark p$i-1
			to p$i-${who[i]} "pause seat$i late-$r"
		done
		for ((i = 0; i < n; i++)); do
			until_ok 20 since_has p$i-${who[i]} '^pause: '
			on[i]=0; since_has p$i-${who[i]} '^pause: ok' && on[i]=1
			tried=$((tried + on[i]))
		done
		for ((i = 0; i < n; i++)); do
			other=p$i-$((1 - who[i]))
			[ "${on[i]}" = 1 ] || continue
			if until_ok 20 since_has "$other" '^held'; then
				to "$other" "put seat$i new-$r"
				until_ok 20 since_has "$other" '^put: '
				since_has "$other" '^put: Success' && written=$((written + 1))
			fi
			kill -CONT "${pids[2 * i + who[i]]}"
		done
		for ((i = 0; i < n; i++)); do
			if [ "${on[i]}" = 1 ]; then
				until_ok 20 since_has p$i-${who[i]} '^put: '
				since_has p$i-${who[i]} '^put: Stale .*that guarded it .*nothing was changed' && refused=$((refused + 1))
				# A call that was held up for 10 s is not sent any more.
				since_has p$i-${who[i]} '^put: Connection timed out No answer came within' && unsent=$((unsent + 1))
			fi
			who[i]=$((1 - who[i]))
		done
		kept=$((kept + $(E get seat --prefix --print-value-only | grep -c "^new-$r$")))
		[ "$(E get seat --prefix --print-value-only | grep -c '^late-')" = 0 ] || not_ok "late: what came too late was written" "$(E get seat --prefix)"
	done
	is "late: $tried times one who was stopped goes on with what it had decided: the core refused $refused, $unsent were too old to be sent" "$((refused + unsent)) $((tried >= times && refused >= 1))" "$tried 1"
	is "late: the other one had written $written times, and that stays" "$kept $((written >= 1))" "$written 1"
	for i in "${pids[@]}"; do end "$i"; done
}

# The shipped examples: a worker that takes over, and a ring that follows.
case_examples() {
	MARK=()
	local e
	for e in worker ring; do
		gcc -std=c99 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -g -o "$DIR/$e" "$HERE/../../conf/examples/libtenure/$e.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure -Wl,-rpath,"$SO" || not_ok "examples: $e.c builds"
	done
	start w1 env TENURE_ENDPOINTS="$URLS" "$DIR/worker" one; local W1=$PID
	until_ok 10 grep -q "^did" "$DIR/w1.log" && ok "examples: a worker works" || not_ok "examples: a worker works" "$(cat "$DIR/w1.log")"
	start w2 env TENURE_ENDPOINTS="$URLS" "$DIR/worker" two; local W2=$PID
	until_ok 5 sh -c "[ \$(ETCDCTL_API=3 etcdctl --endpoints $URLS get jobs/ --prefix --keys-only | grep -c jobs) = 2 ]"
	kill -STOP "$W1"
	until_ok 10 grep -q "^did" "$DIR/w2.log" && ok "examples: another one takes over from one that is stopped" || not_ok "examples: another one takes over" "$(cat "$DIR/w2.log")"
	local did; did=$(grep -c '^did' "$DIR/w1.log")
	kill -CONT "$W1"
	until_ok 5 grep -q "^not my turn" "$DIR/w1.log" && ok "examples: which knows when it goes on" || not_ok "examples: which knows" "$(tail -n 3 "$DIR/w1.log")"
	# The write that was under way when it was stopped may have been done; it learns that first.
	is "examples: the worker that was stopped does nothing more" "$(sed '1,/^not my turn/d' "$DIR/w1.log" | grep -c '^did') $(($(grep -c '^did' "$DIR/w1.log") <= did + 1))" "0 1"
	until_ok 2 sh -c "ETCDCTL_API=3 etcdctl --endpoints $URLS get /jobs/done --print-value-only | grep -q 'by $(awk '/^my turn/ {print $NF}' "$DIR/w2.log")\$'" && ok "examples: what is written is the new one's" || not_ok "examples: what is written" "$(E get /jobs/done)"
	end "$W1"; end "$W2"
	E put /tenure/default/nodes/r1 '{"name":"r1"}' >/dev/null; E put /tenure/default/nodes/r2 '{"name":"r2"}' >/dev/null
	start ring env TENURE_ENDPOINTS="$URLS" "$DIR/ring" a b c d e f g h i j k l m n o p; local R=$PID
	owner() { awk -v k="$1" '$1 == k {o = $2} END {print o}' "$DIR/ring.log"; }
	until_ok 5 sh -c "[ \$(awk '{print \$1}' '$DIR/ring.log' | sort -u | wc -l) = 16 ]" && ok "examples: each key has an owner" || not_ok "examples: each key has an owner" "$(cat "$DIR/ring.log")"
	local before k moved=0 wrong=0
	before=$(for k in {a..p}; do echo "$k $(owner $k)"; done)
	is "examples: both nodes have some" "$(awk '{print $2}' <<<"$before" | sort -u | tr '\n' ' ')" "r1 r2 "
	E put /tenure/default/nodes/r3 '{"name":"r3"}' >/dev/null
	until_ok 5 grep -q ' r3$' "$DIR/ring.log"; sleep 0.2
	while read -r k o; do [ "$(owner "$k")" = "$o" ] || { moved=$((moved + 1)); [ "$(owner "$k")" = r3 ] || wrong=$((wrong + 1)); }; done <<<"$before"
	is "examples: a third one takes some, and no other key moves" "$((moved > 0)) $wrong" "1 0"
	E del /tenure/default/nodes/r3 >/dev/null
	until_ok 5 sh -c "! for k in a b c d e f g h i j k l m n o p; do awk -v k=\$k '\$1 == k {o = \$2} END {print o}' '$DIR/ring.log'; done | grep -q r3"
	is "examples: a third one gives its keys back when it leaves" "$(for k in {a..p}; do echo "$k $(owner $k)"; done)" "$before"
	E del /tenure/default/nodes/ --prefix >/dev/null
	end "$R"
}

for what in $CASES; do
	case $what in
	sealed | file) case_agent "$what" ;;
	*) "case_$what" ;;
	esac
done
finish
