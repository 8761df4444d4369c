#!/usr/bin/env bash
# What programs of libtenure's do, under valgrind: nothing is read that was not written, nothing is used after its end, and
# tenure_free() leaves nothing behind. On one replica of tenure-core.
# usage: BIN=build/release/bin DIR=build/libtenure-valgrind [SEED=n] tests/system/libtenure_valgrind.sh
. "$(dirname "$0")/lib.sh"
command -v valgrind >/dev/null || { skip "libtenure under valgrind" "no valgrind here"; finish; exit; }
TOP=$(cd "$(dirname "$0")/../.." && pwd)
SO=$(realpath "$BIN/../so")
read -r c p < <(free_ports 2)
export TENURE_ENDPOINTS=http://127.0.0.1:$c
for f in tie libtenure_calls libtenure_cache libtenure_random work_member; do
	gcc -std=gnu11 -g -O1 -Wall -Wextra -Werror -I"$TOP/lib/tenure" -o "$DIR/$f" "$TOP/tests/system/$f.c" -L"$SO" -ltenure -Wl,-rpath,"$SO" || { not_ok "$f.c compiles"; finish; exit 1; }
done
start_replica core "$c" "$p"
E() { timeout 5 etcdctl --endpoints "127.0.0.1:$c" "$@"; }
until_ok 20 E put begin yes || { not_ok "the core serves" "$(tail -n 3 "$DIR/core.log")"; finish; exit 1; }

# What a library that is loaded keeps for the process is no leak of ours: definite and indirect ones count.
UNDER=(valgrind --quiet --leak-check=full --errors-for-leak-kinds=definite,indirect --show-leak-kinds=definite,indirect --track-fds=no --error-exitcode=99 --trace-children=no)
under() { exec "${UNDER[@]}" --log-file="$DIR/$1.valgrind" "${@:2}"; }
# clean NAME STATUS: how it ended, and what valgrind has to say.
clean() {
	is "$1: exit status" "$2" 0
	[ -f "$DIR/$1.valgrind" ] || { not_ok "$1: ran under valgrind"; return; }
	is "$1: nothing is wrong" "$(head -n 12 "$DIR/$1.valgrind" | tr '\n' '|')" ""
}
whole() { (under "$@") >"$DIR/$1.log" 2>&1; clean "$1" $?; } # one that ends by itself
says() { until_ok 40 grep -qE -- "$2" "$DIR/$1.log" || not_ok "$1: says $2" "$(tail -n 3 "$DIR/$1.log")"; }

# The tool sees what it is to see.
printf '#include <tenure.h>\nint main(void) { struct tenure *t; return tenure_new(&t); }\n' >"$DIR/leaks.c"
gcc -g -I"$TOP/lib/tenure" -o "$DIR/leaks" "$DIR/leaks.c" -L"$SO" -ltenure -Wl,-rpath,"$SO"
(under leaks "$DIR/leaks") >"$DIR/leaks.log" 2>&1; is "a tie that is not freed is found" $? 99

whole leases "$DIR/libtenure_calls" leases
whole named "$DIR/libtenure_calls" named
whole puts "$DIR/libtenure_calls" puts 500

# Everything in any order: what is begun is freed at once, or in the middle, or never; forks, and no descriptors.
SEED=${SEED:-$RANDOM} failed=$FAILED
whole "random $SEED" "$DIR/libtenure_random" "$SEED" 10
has "the random program had locks and tasks" "$(tail -n 1 "$DIR/random $SEED.log")" "refused [0-9]+, locks and tasks [1-9]"
[ "$FAILED" -eq "$failed" ] || echo "a defect, found by seed $SEED: run it again: SEED=$SEED BIN=$BIN DIR=$DIR $0"

# A session with a service, a lock that is handed over, guarded writes.
for t in a b; do
	rm -f "$DIR/$t.in"; mkfifo "$DIR/$t.in"
	under $t "$DIR/tie" "own:20000:$t" <>"$DIR/$t.in" >"$DIR/$t.log" 2>&1 & # start() would read nothing
	PIDS+=($!); eval "P$t=$!"
	says $t '^held'
done
to() { echo "${*:2}" >"$DIR/$1.in"; }
to a register cache 11211 role=primary; says a '^register: ok'
to a lock jobs first; says a '^locked'
to b lock jobs second; until_ok 30 eval '[ "$(E get jobs/ --prefix --keys-only | grep -c jobs)" = 2 ]' || not_ok "b waits"
to a put guarded yes; until_ok 30 eval '[ "$(E get guarded --print-value-only)" = yes ]' || not_ok "a guarded write"
to a child; says a '^child: no no'
to b switch jobs b 20000; says a '^asked'
to a hand; says b '^locked'; says b '^switched: from a to b'
to a unlock; to a leave; says a '^lost .*given back'
to b unlock; to b quit; to a quit
# shellcheck disable=SC2154
wait "$Pa"; clean a $?
# shellcheck disable=SC2154
wait "$Pb"; clean b $?

# A cache that is recalled while it is there, and given back.
start cache under cache "$DIR/libtenure_cache" hold k; PC=$PID
says cache '^cached'
TENURE_ENDPOINTS=http://127.0.0.1:$c "$DIR/libtenure_cache" write k 1 5 >"$DIR/writes.log"
is "writes beside it" "$(grep -c '^wrote' "$DIR/writes.log")" 5
until_ok 30 eval '[ "$(grep -c ^cached "$DIR/cache.log")" -ge 2 ]' || not_ok "it is cached again"
kill "$PC"; wait "$PC"; clean cache $?

# A group of two members, one of which leaves.
for m in one two; do start $m under $m "$DIR/work_member" join g $m 20000 20 100 "$DIR/had.$m"; eval "W$m=\$PID"; done
# Both have some: one of them alone takes all while the other one is still being loaded, when a signal would just end it.
n_tasks() { E get /tenure/default/work/g/tasks/ --prefix --print-value-only | grep -cx "$1"; } # of MEMBER
shared() { local n m; n=$(n_tasks one) m=$(n_tasks two); [ "$n" -gt 0 ] && [ "$m" -gt 0 ] && [ $((n + m)) = 20 ]; }
until_ok 60 shared || not_ok "both have tasks" "$(n_tasks one), $(n_tasks two) $(tail -n 2 "$DIR/one.log" "$DIR/two.log")"
# shellcheck disable=SC2154
kill "$Wone"; wait "$Wone"; clean one $?
until_ok 60 eval '[ "$(n_tasks two)" = 20 ]' || not_ok "the other one has them all"
# shellcheck disable=SC2154
kill "$Wtwo"; wait "$Wtwo"; clean two $?
finish
