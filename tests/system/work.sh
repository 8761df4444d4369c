#!/usr/bin/env bash
# Shared work, with libtenure and `tenurectl work`, on three replicas of tenure-core or on a real etcd (ENGINE=etcd): members
# join, leave, are killed and frozen; what each of them did and when, on one clock, says whether a task was ever at two of them.
# usage: BIN=build/release/bin DIR=build/work [ENGINE=etcd] tests/system/work.sh [CASE...]
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
CASES=${*:-members example commands rights}
SO=$(realpath "$BIN/../so") HERE=$(realpath "$(dirname "$0")")
gcc -Wall -Wextra -Werror -O1 -g -o "$DIR/work_member" "$HERE/work_member.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure -Wl,-rpath,"$SO" || { not_ok "work_member.c builds"; finish; exit 1; }

# The core: $URLS.
if [ "$ENGINE" = etcd ]; then
	wants_etcd "shared work on a real etcd"
	read -r c p < <(free_ports 2)
	URLS=http://127.0.0.1:$c LATE_MS=1500 # it looks for leases that ended every 500 ms, and counts whole seconds
	start_etcd core "$c" "$p"
else
	read -r c c2 c3 p p2 p3 < <(free_ports 6)
	URLS=http://127.0.0.1:$c,http://127.0.0.1:$c2,http://127.0.0.1:$c3 LATE_MS=0
	all=core1=http://127.0.0.1:$p,core2=http://127.0.0.1:$p2,core3=http://127.0.0.1:$p3
	for i in 1 2 3; do
		cc=c${i#1} pp=p${i#1}
		start_replica "core$i" "${!cc}" "${!pp}" --initial-cluster "$all"
	done
fi
E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
until_ok 20 E get x || { not_ok "the core serves" "$(tail -n 3 "$DIR"/core*.log)"; finish; exit 1; }
export TENURE_ENDPOINTS=$URLS
end() { kill -9 "$1" 2>/dev/null; wait "$1" 2>/dev/null; }
now_us() { /usr/bin/python3 -c 'import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)'; } # as work_member.c
# owners GROUP: "task member" of each task that somebody has.
owners() { E get "/tenure/default/work/$1/tasks/" --prefix | paste - - | sed 's|.*/tasks/||' | awk '{print $1, $2}'; }
n_owned() { owners "$1" | wc -l; }
has_n() { [ "$(owners "$1" | awk -v m="$2" '$2 == m' | wc -l)" = "$3" ]; }
# due GROUP: the same as it should be, by the members that are there; a computation of its own.
due() {
	E get "/tenure/default/work/$1/members/" --prefix >"$DIR/members.txt"
	/usr/bin/python3 - "$HERE/work_check.py" "$DIR/members.txt" <<'END'
import json, sys
source = open(sys.argv[1]).read().rsplit("main()", 1)[0]
exec(source)
lines = open(sys.argv[2]).read().split("\n")
members = {k.rsplit("/", 1)[1]: json.loads(v) for k, v in zip(lines[::2], lines[1::2]) if k}
names = lambda r: [str(i + 1) for i in range(r["tasks"])] if isinstance(r["tasks"], int) else r["tasks"]
for t in sorted({t for r in members.values() for t in names(r)}):
    print(t, owner(t, {m: r["weight"] for m, r in members.items() if t in names(r)}))
END
}
settled() { local d; d=$(due "$1"); [ -n "$d" ] && [ "$(owners "$1" | sort)" = "$(sort <<<"$d")" ]; }
check() { /usr/bin/python3 "$HERE/work_check.py" "$@"; }

# Members with libtenure; 200 tasks.
case_members() {
	local n=200 ttl=4000 pids=() began log revision # on a busy machine 2 s are not always kept
	mkdir "$DIR/had"
	# join NAME WEIGHT: its process is $PID.
	join() { start "$1" "$DIR/work_member" join g "$1" $ttl $n "$2" "$DIR/had/$1.$RANDOM"; }
	join m1 100; pids[1]=$PID
	until_ok 30 has_n g m1 $n && ok "members: the first one has all" || not_ok "members: the first one has all" "$(cat "$DIR/m1.log")"
	for i in 2 3 4; do join m$i 100; pids[i]=$PID; done
	four() { [ "$(E get /tenure/default/work/g/members/ --prefix --keys-only | grep -c members)" = 4 ]; }
	until_ok 30 four
	until_ok 30 settled g && ok "members: four divide them as computed elsewhere" || not_ok "members: four divide them" "$(diff <(owners g | sort) <(due g | sort) | head -n 4)"
	began=$(now_us)
	mkfifo "$DIR/members.fifo"
	stamp() { while read -r line; do echo "${EPOCHREALTIME/./} $line"; done <"$DIR/members.fifo"; }
	start members stamp
	start watch sh -c 'exec etcdctl --endpoints "$1" watch --prefix /tenure/default/work/g/members/ --rev 1 -w json >"$2"' _ "${URLS%%,*}" "$DIR/members.fifo"
	revision_is_known() { revision=$(E get x -w json | jq -e .header.revision); }
	until_ok 20 revision_is_known
	log=$(owners g | sort)

	gone() { [ -z "$(E get "/tenure/default/work/g/members/$1")" ]; }
	end "${pids[2]}"
	until_ok 30 gone m2
	until_ok 30 settled g && ok "members: one is killed: the others have its tasks" || not_ok "members: one is killed" "$(diff <(owners g | sort) <(due g | sort) | head -n 4)"
	is "members: and no other task moved" "$(comm -23 <(grep -v ' m2$' <<<"$log") <(owners g | sort) | wc -l)" 0
	kill -STOP "${pids[3]}"
	until_ok 30 gone m3
	until_ok 30 settled g && ok "members: one is frozen beyond its TTL: the others have its tasks" || not_ok "members: one is frozen"
	join m2 100; pids[2]=$PID; kill -CONT "${pids[3]}"
	there() { ! gone m2 && ! gone m3; }
	until_ok 30 there
	until_ok 30 settled g && ok "members: both come back" || not_ok "members: both come back"
	is "members: and all is as it was" "$(owners g | sort)" "$log"
	join m5 300; pids[5]=$PID
	in5() { ! gone m5; }
	until_ok 30 in5
	until_ok 30 settled g && ok "members: one of three times the weight" || not_ok "members: one of three times the weight"
	local has; has=$(owners g | grep -c ' m5$')
	is "members: has about three of seven" "$((has > 60 && has < 112))" 1
	# In order: nothing waits for a lease.
	kill -TERM "${pids[4]}"; wait "${pids[4]}"
	is "members: one leaves: its key is gone when it ends" "$(E get /tenure/default/work/g/members/m4)" ""
	until_ok 30 settled g && ok "members: and its tasks are with the others" || not_ok "members: one leaves"
	# A key that an operator deletes: the member that should have the task creates it again, with a larger token.
	local t before
	read -r t _ < <(owners g)
	before=$(E get "/tenure/default/work/g/tasks/$t" -w json | jq '.kvs[0].create_revision')
	E del "/tenure/default/work/g/tasks/$t" >/dev/null
	until_ok 30 settled g && ok "members: a task's key is deleted by hand: made anew" || not_ok "members: a task's key is deleted by hand"
	is "members: with a larger token" "$(($(E get "/tenure/default/work/g/tasks/$t" -w json | jq '.kvs[0].create_revision') > before))" 1
	E del "/tenure/default/work/g/members/m1" >/dev/null
	until_ok 30 settled g && [ -n "$(E get /tenure/default/work/g/members/m1)" ] && ok "members: a member's key, too" || not_ok "members: a member's key is deleted by hand"
	local until; until=$(now_us)
	cp "$DIR/members.log" "$DIR/members.heard" # that they end now is no fault
	kill -TERM "${pids[1]}" "${pids[2]}" "${pids[3]}"; end "${pids[5]}"
	wait "${pids[1]}" "${pids[2]}" "${pids[3]}"
	check "$DIR/had" --tasks $n --bound-ms $((ttl + 2500 + LATE_MS)) --from "$began" --to "$until" --members "$DIR/members.heard" --revision "$revision" >"$DIR/check.txt" && ok "members: no task was at two, tokens rise, nobody had one for TTL + 2.5 s at most: $(tail -n 1 "$DIR/check.txt")" ||
		not_ok "members: what the witnesses wrote down" "$(tail -n 4 "$DIR/check.txt" | tr '\n' '|')"
}

# The shipped example, as a user would build it.
case_example() {
	local a b
	gcc -std=c99 -Wall -Wextra -Werror -D_POSIX_C_SOURCE=200809L -g -o "$DIR/shards" "$HERE/../../conf/examples/libtenure/shards.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure -Wl,-rpath,"$SO" || not_ok "example: shards.c builds"
	start shards.a "$DIR/shards" a; a=$PID
	until_ok 30 has_n shards a 12 && ok "example: one has all shards" || not_ok "example: one has all shards" "$(cat "$DIR/shards.a.log")"
	start shards.b "$DIR/shards" b; b=$PID
	two() { [ "$(n_owned shards)" = 12 ] && ! has_n shards b 0 && settled shards; }
	until_ok 30 two && ok "example: two divide them" || not_ok "example: two divide them" "$(owners shards)"
	until_ok 5 grep -q '^shard [0-9]*, token [0-9]*$' "$DIR/shards.b.log" && ok "example: and work at theirs" || not_ok "example: and work at theirs"
	has "example: the first one was told why" "$(cat "$DIR/shards.a.log")" "^end [0-9]+: it goes to the member b$"
	kill -TERM "$a"; wait "$a"
	until_ok 5 has_n shards b 12 && ok "example: one is interrupted, and the other has all" || not_ok "example: one is interrupted" "$(owners shards)"
	end "$b"
}

# tenurectl work: commands, and what becomes of them.
case_commands() {
	local tasks=alpha,beta,gamma,delta,epsilon,zeta,eta,theta i revision pids=()
	mkdir "$DIR/acts"
	ctl() { timeout 20 "$BIN/tenurectl" "$@"; }
	ctl_forever() { exec "$BIN/tenurectl" "$@"; }
	# work NAME [OPTION...]: its process is $PID; commands are witnesses.
	work() { local name=$1; shift; start "w.$name" ctl_forever work w --tasks=$tasks --name="$name" --ttl=4s "$@" -- "$DIR/work_member" act "$DIR/acts/$name"; }
	pids_of() { pgrep -f "^$DIR/work_member act $DIR/acts/$1( |\$)"; } # not the keepers, who are called as tenurectl is
	processes() { pids_of "$1" | wc -l; }
	run() { [ "$(processes "$1")" = "$2" ]; }
	all_run() { [ "$(processes '[a-c]')" = 8 ] && settled w; }
	none_of() { [ "$(processes "$1")" = 0 ]; }

	work a; pids[1]=$PID
	until_ok 30 run a 8 && ok "work: one member runs the command for each task" || not_ok "work: one member runs all" "$(cat "$DIR/w.a.log")"
	work b; pids[2]=$PID; work c; pids[3]=$PID
	listed() { [ "$(E get /tenure/default/work/w/members/ --prefix --keys-only | grep -c members)" = 3 ]; }
	until_ok 30 listed; until_ok 30 all_run && ok "work: three divide them" || not_ok "work: three divide them" "$(owners w | tr '\n' ' ')"
	until_ok 5 has_n w w:a "$(processes a)" && ok "work: what runs is what the core says" || not_ok "work: what runs is what the core says" "$(processes a) $(owners w)"
	has "work: the list says who has what" "$(ctl work w --cluster=default | tr '\n' '|')" "^TASK +MEMBER +TOKEN\|alpha +w:[abc] +[0-9]+\|.*8 task\(s\), 0 of them unassigned\.\|$"
	is "work: as JSON, too" "$(ctl work w --cluster=default --json=short | jq -r '[.[].task] | join(",")')" "alpha,beta,delta,epsilon,eta,gamma,theta,zeta"

	# tenurectl is killed: its commands end at once, and run elsewhere when its lease has ended.
	kill -9 "${pids[1]}"
	until_ok 3 none_of a && ok "work: tenurectl is killed: its commands are gone" || not_ok "work: tenurectl is killed: its commands are gone"
	gone() { [ -z "$(E get "/tenure/default/work/w/members/w:$1")" ]; }
	until_ok 30 gone a; until_ok 30 all_run && ok "work: and run elsewhere" || not_ok "work: and run elsewhere" "$(owners w | tr '\n' ' ')"
	# It is stopped: the commands go on until just before its lease ends.
	kill -STOP "${pids[2]}"
	until_ok 30 none_of b && ok "work: tenurectl is stopped: its commands are ended" || not_ok "work: tenurectl is stopped: its commands are ended"
	until_ok 30 gone b; until_ok 30 run c 8 && ok "work: and run elsewhere" || not_ok "work: and run elsewhere" "$(owners w | tr '\n' ' ')"
	kill -CONT "${pids[2]}"
	back() { ! gone b && [ "$(processes b)" -gt 0 ] && all_run; }
	until_ok 30 back && ok "work: when it goes on, it joins again" || not_ok "work: when it goes on, it joins again" "$(tail -n 2 "$DIR/w.b.log")"
	has "work: and has said what was lost" "$(cat "$DIR/w.b.log")" "the lease is lost; asking for another one"
	# A keeper is killed: nothing of its command is left, and all run again.
	kill -9 "$(pgrep -P "${pids[3]}" | head -n 1)"
	until_ok 5 grep -q "a process that supervised a command was killed" "$DIR/w.c.log" && until_ok 30 all_run && ok "work: a keeper is killed: its member's commands begin anew" ||
		not_ok "work: a keeper is killed" "$(tail -n 3 "$DIR/w.c.log")"
	# One command ends: it is run again.
	kill -9 "$(pids_of c | head -n 1)"
	until_ok 5 grep -qE "the command for task [a-z]+ ended by SIGKILL; it is run again in 0.1 s" "$DIR/w.c.log" && until_ok 5 all_run && ok "work: a command that ends is run again" ||
		not_ok "work: a command that ends is run again" "$(tail -n 3 "$DIR/w.c.log")"
	# It leaves in order: the commands end, then it does.
	kill -TERM "${pids[2]}"
	wait "${pids[2]}"; is "work: told to leave, it ends with 0" $? 0
	# What the core has not confirmed when it ends, its lease ends.
	nothing_left() { [ "$(processes b) $(E get /tenure/default/work/w/members/w:b)$(E get /tenure/default/sessions/w:b)" = "0 " ]; }
	until_ok 8 nothing_left && ok "work: with nothing left" || not_ok "work: with nothing left" "$(processes b) $(E get --prefix /tenure/default/work/w/members)"
	until_ok 5 run c 8 && ok "work: and all is where it is to be" || not_ok "work: and all is where it is to be"
	kill -TERM "${pids[3]}"; wait "${pids[3]}"
	check "$DIR/acts" --tasks $tasks --bound-ms 100000 >"$DIR/check-acts.txt" && ok "work: no task ran twice: $(tail -n 1 "$DIR/check-acts.txt")" ||
		not_ok "work: what the witnesses wrote down" "$(tail -n 4 "$DIR/check-acts.txt" | tr '\n' '|')"

	# A command that ignores signals is killed in time, and until then no other member gets its task.
	start deaf ctl_forever work w --tasks=1 --name=d --ttl=2s --grace=500ms -- "$DIR/work_member" act "$DIR/acts/deaf" deaf; i=$PID
	until_ok 30 run deaf 1
	kill -TERM "$i"; wait "$i"; is "work: a deaf command is killed after its grace" "$? $(processes deaf)" "0 0"
	# Different lists: each task goes to one of the members that list it.
	printf '# tasks\none\n\ntwo\n' >"$DIR/list"
	start u1 ctl_forever work u --tasks=@"$DIR/list" --name=a --ttl=2s -- sleep 1000; pids[1]=$PID
	start u2 ctl_forever work u --tasks=two,three --name=b --ttl=2s -- sleep 1000; pids[2]=$PID
	union() { [ "$(n_owned u)" = 3 ] && settled u; }
	until_ok 30 union && ok "work: members with different lists divide what they share" || not_ok "work: different lists" "$(owners u)"
	is "work: and have alone what only they have" "$(owners u | grep -v '^two' | sort | tr '\n' ' ')" "one u:a three u:b "
	start u3 ctl_forever work u --tasks=two --name=b --ttl=2s -- sleep 1000
	until_ok 5 grep -q "the session 'u:b' is held by another program" "$DIR/u3.log" && ok "work: a name that is taken is told" || not_ok "work: a name that is taken is told" "$(cat "$DIR/u3.log")"
	end "$PID"; end "${pids[1]}"; end "${pids[2]}"
	# What the command finds.
	start env ctl_forever work e --bus="unix:path=$DIR/no-bus" --cluster=default --tasks=1 --name=x --ttl=2s -- sh -c 'echo "$TENURE_GROUP $TENURE_TASK $TENURE_TOKEN ${DBUS_SYSTEM_BUS_ADDRESS-its own bus}"; exec sleep 1000'; i=$PID
	until_ok 30 grep -q . "$DIR/env.log"
	is "work: group, task and token in the environment, and nothing of --bus" "$(cat "$DIR/env.log")" "e 1 $(E get /tenure/default/work/e/tasks/1 -w json | jq '.kvs[0].create_revision') its own bus"
	kill -TERM "$i"; wait "$i"
	# Nobody reads the output of the commands, or ours: the tasks stay ours.
	mkfifo "$DIR/unread"; start unread sh -c 'exec 3<>"$1"; exec sleep 1000' _ "$DIR/unread"; pids[1]=$PID
	ctl_unread() { exec "$BIN/tenurectl" "$@" 2>"$DIR/unread"; }
	start full ctl_unread work f --tasks=1,2 --name=x --ttl=10s -- sh -c '[ "$TENURE_TASK" = 1 ] || exec head -c 1000000 /dev/zero >&2; sleep 1; echo again; exit 1'; i=$PID
	until_ok 30 grep -q again "$DIR/full.log"; revision=$(E get /tenure/default/work/f/tasks/1 -w json | jq '.kvs[0].create_revision')
	ended_thrice() { [ "$(grep -c again "$DIR/full.log")" -ge 4 ]; } # and each time there is something to say
	until_ok 30 ended_thrice && ok "work: nobody reads what it says, and commands go on" || not_ok "work: nobody reads what it says" "$(cat "$DIR/full.log")"
	is "work: with the token that they had" "$(E get /tenure/default/work/f/tasks/1 -w json | jq '.kvs[0].create_revision')" "$revision"
	kill -TERM "$i"; until_ok 20 eval "! kill -0 $i 2>/dev/null" && ok "work: and it ends when it is told to" || not_ok "work: and it ends when it is told to"
	end "$i"; end "${pids[1]}"
	wrong() { local what=$1 want=$2 got; shift 2; got=$(timeout 5 "$BIN/tenurectl" work "$@" 2>&1); is "work: $what: 125" $? 125; has "work: $what: it says so" "$got" "$want"; }
	wrong "a command without tasks" "work needs GROUP --tasks=TASKS -- COMMAND" g -- true
	wrong "a task twice" "the task 'a' is named twice" g --tasks=a,b,a -- true
	wrong "a name that is none" "a task's name has 1 to 255 letters, digits and . _ - :, without a leading dot; 'a/b' is not one" g --tasks=a/b -- true
	wrong "no number of tasks" "--tasks must be a number from 1 to 10000" g --tasks=10001 -- true
	wrong "a weight that is none" "--weight must be a number from 1 to 10000, not '0'" g --tasks=1 --weight=0 -- true
	wrong "to list a group whose name is none" "a group's name has 1 to 255 letters, digits and . _ - :, without a leading dot; 'xxx" "$(printf 'x%.0s' {1..5000})"
	wrong "a file that is not there" "cannot read tasks from /nowhere: No such file" g --tasks=@/nowhere -- true
}

# One that may write itself, and see nothing else of the group: it is refused, and its share is the others'.
case_rights() {
	local n=50
	mkdir "$DIR/rights"
	E user add root:root >/dev/null; E role add root >/dev/null; E user grant-role root root >/dev/null
	E user add all:all >/dev/null; E role add all >/dev/null; E user grant-role all all >/dev/null; E role grant-permission all --prefix=true readwrite /tenure/ >/dev/null
	E user add few:few >/dev/null; E role add few >/dev/null; E user grant-role few few >/dev/null
	for what in sessions work/r/members; do E role grant-permission few --prefix=true readwrite /tenure/default/$what/ >/dev/null; done
	E auth enable >/dev/null || not_ok "rights: users are asked for" "$(E auth status)"
	E() { timeout 5 etcdctl --endpoints "$URLS" --user root:root "$@"; }
	start r.a env MEMBER_USER=all MEMBER_PASSWORD=all "$DIR/work_member" join r a 4000 $n 100 "$DIR/rights/a"
	until_ok 30 has_n r a $n && ok "rights: one has all" || not_ok "rights: one has all" "$(cat "$DIR/r.a.log")"
	start r.b env MEMBER_USER=few MEMBER_PASSWORD=few "$DIR/work_member" join r b 4000 $n 100 "$DIR/rights/b"
	until_ok 30 grep -q '^left .*permission denied' "$DIR/r.b.log" && ok "rights: one that may not see the group is refused" || not_ok "rights: one that may not see the group is refused" "$(cat "$DIR/r.b.log")"
	sleep 2 # a second, and what has joined gets its share
	until_ok 10 has_n r a $n && settled r && ok "rights: and has no share, though it lives" || not_ok "rights: and has no share, though it lives" "$(n_owned r) of $n are somebody's"
	is "rights: it does live" "$(E get /tenure/default/sessions/b --keys-only | head -n 1)" /tenure/default/sessions/b
	E auth disable >/dev/null
	E() { timeout 5 etcdctl --endpoints "$URLS" "$@"; }
}

for what in $CASES; do "case_$what"; done
finish
