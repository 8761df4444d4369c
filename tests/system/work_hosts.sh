#!/usr/bin/env bash
# Shared work on four real hosts: ten members, a thousand tasks, and faults at random for SECONDS: members that are killed,
# frozen, and leave; hosts that are cut off, frozen, and lose their power. Afterwards what each member did and when is judged:
# no task at two members at any instant, none without a member for longer than TTL + 1 s, no more moves than joins and deaths
# make necessary, and a tenth. The core's leader is left alone: how long a change of leaders takes is measured elsewhere.
# usage: BIN=build/release/bin DIR=build/work-hosts tests/system/work_hosts.sh [SECONDS [SEED]]
SECONDS_OF_FAULTS=${1:-60} SEED=${2:-$RANDOM} TASKS=${TASKS:-1000} SHARE_TTL_MS=${SHARE_TTL_MS:-3000}
. "$(dirname "$0")/hosts_lib.sh"
HERE=$(realpath "$(dirname "$0")") SO=$(realpath "$BIN/../so")
gcc -Wall -Wextra -Werror -O1 -g -o "$DIR/work_member" "$HERE/work_member.c" -I"$HERE/../../lib/tenure" -L"$SO" -ltenure || { not_ok "work_member.c builds"; finish; exit 1; }
RANDOM=$SEED
echo "seed $SEED"
HOST=(- h1 h1 h2 h2 h3 h3 h4 h4 h4 h4) LIFE=(0 0 0 0 0 0 0 0 0 0 0)
root_of() { echo "/proc/$(rig_init "$1")/root"; }
boot_us() { /usr/bin/python3 -c 'import time; print(time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000)'; } # as work_member.c
URLS=http://10.77.0.1:2379,http://10.77.0.2:2379,http://10.77.0.3:2379

ready() { mkdir -p "$(root_of "$1")/var/work" && cp "$DIR/work_member" "$(root_of "$1")/usr/bin/"; }
for h in h1 h2 h3 h4; do ready $h; done
# up I: another life of member I, as a unit of its host.
up() {
	LIFE[$1]=$((LIFE[$1] + 1))
	on "${HOST[$1]}" systemd-run --quiet --collect --unit="m$1-${LIFE[$1]}" --setenv=TENURE_ENDPOINTS=$URLS /usr/bin/work_member join g "m$1" "$SHARE_TTL_MS" "$TASKS" 100 "/var/work/m$1.${LIFE[$1]}" ||
		not_ok "member $1 starts"
}
signal() { on "${HOST[$2]}" systemctl kill -s "$1" "m$2-${LIFE[$2]}" 2>/dev/null; }
runs_not() { ! on "${HOST[$1]}" systemctl is-active --quiet "m$1-${LIFE[$1]}"; }
owned() { etcd get /tenure/default/work/g/tasks/ --prefix --keys-only --limit 20000 | grep -c tasks; }
members() { etcd get /tenure/default/work/g/members/ --prefix --keys-only | grep -c members; }
all_in() { [ "$(members)" = 10 ] && [ "$(owned)" = "$TASKS" ]; }
# Each task is where the next look finds it, too, for longer than members settle.
calm() { local a; all_in || return 1; a=$(where); sleep 1.5; [ "$a" = "$(where)" ]; }
where() { etcd get /tenure/default/work/g/tasks/ --prefix -w json | jq -c '[.kvs[] | [.key, .create_revision]]' | md5sum; }
for i in 1 2 3 4 5 6 7 8 9 10; do up $i; done
until_ok 30 all_in && until_ok 30 calm && ok "ten members divide $TASKS tasks" || { not_ok "ten members divide the tasks" "$(members) members, $(owned) tasks"; finish; exit 1; }

# Once more where it ended, should its replica have had no leader for a while.
watch_members() {
	local line last next=1
	while :; do
		while read -r line; do
			echo "${EPOCHREALTIME/./} $line"
			last=$(jq '[.Events[]?.kv.mod_revision] | max // empty' <<<"$line" 2>/dev/null)
			[ -z "$last" ] || next=$((last + 1))
		done < <(on h1 env ETCDCTL_API=3 etcdctl --endpoints 10.77.0.1:2379 watch --prefix /tenure/default/work/g/members/ --rev "$next" -w json 2>/dev/null)
		sleep 0.2
	done
}
start members watch_members
until_ok 5 grep -q kvs "$DIR/members.log" || until_ok 1 grep -q Events "$DIR/members.log"
REVISION=$(etcd get x -w json | jq .header.revision) BEGAN=$(boot_us) KINDS=
leader() { etcd endpoint status --endpoints 10.77.0.1:2379,10.77.0.2:2379,10.77.0.3:2379 -w json 2>/dev/null | jq -r '.[] | select(.Status.leader == .Status.header.member_id) | .Endpoint' | sed 's/.*10.77.0.\([0-9]\).*/h\1/'; }
# A host that is not the leader's, and not h1, at which the rest listens.
other_host() { local l h; l=$(leader); while :; do h=h$((2 + RANDOM % 3)); [ "$h" = "$l" ] || break; done; echo "$h"; }
between() { sleep "$(($1 + RANDOM % ($2 - $1 + 1)))"; }
until_s=$((SECONDS + SECONDS_OF_FAULTS)) n=0
while [ $SECONDS -lt $until_s ]; do
	i=$((1 + RANDOM % 10)) h=$(other_host) kind=$((RANDOM % 7)) n=$((n + 1))
	case $kind in
	0 | 1) KINDS+="killed "; signal KILL $i; until_ok 5 runs_not $i; [ $((RANDOM % 2)) = 0 ] || between 1 8; up $i ;;
	2) KINDS+="frozen "; signal STOP $i; between 1 10; signal CONT $i ;;
	3) KINDS+="left "; signal TERM $i; until_ok 10 runs_not $i || not_ok "member $i leaves"; between 1 4; up $i ;;
	4) KINDS+="host-frozen "; rig freeze "$h"; between 1 8; rig thaw "$h" ;;
	5) KINDS+="host-cut "; if [ $((RANDOM % 2)) = 0 ]; then rig cut "$h"; else rig cut "$h" silent; fi; between 1 8; rig heal ;;
	6)
		KINDS+="power "
		rig kill h4; between 1 6; rig start h4 >/dev/null
		for i in 7 8 9 10; do up $i; done
		;;
	esac
	between 2 6
done
rig heal
until_ok 40 all_in && until_ok 30 calm && ok "$n faults later, all are there again" || not_ok "$n faults later, all are there again" "$(members) members, $(owned) tasks"
UNTIL=$(boot_us)
cp "$DIR/members.log" "$DIR/members.heard" # that they end now is no fault
for i in 1 2 3 4 5 6 7 8 9 10; do signal TERM $i; done
for i in 1 2 3 4 5 6 7 8 9 10; do until_ok 10 runs_not $i || not_ok "member $i ends"; done
mkdir "$DIR/had"
for h in h1 h2 h3 h4; do cp --sparse=always "$(root_of $h)"/var/work/* "$DIR/had/"; done
echo "faults: $(tr ' ' '\n' <<<"$KINDS" | grep . | sort | uniq -c | awk '{printf "%s%s %s", s, $1, $2; s = ", "}')"
if /usr/bin/python3 "$HERE/work_check.py" "$DIR/had" --tasks "$TASKS" --bound-ms $((SHARE_TTL_MS + 1000)) --from "$BEGAN" --to "$UNTIL" --members "$DIR/members.heard" --revision "$REVISION" >"$DIR/check.txt"; then
	ok "no task was at two members, and no more moved than must"
else
	not_ok "what the members wrote down" "seed $SEED"
fi
cat "$DIR/check.txt"
finish
