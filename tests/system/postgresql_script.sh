#!/usr/bin/env bash
# What the script of the PostgreSQL recipe does when something fails in the middle; everything around it is played by this test.
# recipes.sh runs the recipe as a whole, on real hosts.
# usage: DIR=build/postgresql-script tests/system/postgresql_script.sh
. "$(dirname "$0")/lib.sh"
wants_plain # as where the files of the shipped script are
DIR=$PLAIN
mkdir -p "$DIR/bin" "$DIR/data" "$DIR/run"
printf 'SOURCE="host=db1"\nETCDCTL_ENDPOINTS=http://127.0.0.1:1\n' >"$DIR/default"
# The script as it is shipped, but for where things are.
sed "s|/etc/default/tenure-postgresql|$DIR/default|; s|^bin=.*|bin=$DIR/bin|; s|/run/tenure|$DIR/run/tenure|" "$SYSTEM/../../conf/examples/postgresql/tenure-postgresql" >"$DIR/script"
play() { { echo '#!/bin/sh'; echo "D=$DIR"; cat; } >"$DIR/bin/$1"; chmod 755 "$DIR/bin/$1"; }
play pg_conftool <<'END'
case $5 in data_directory) echo "$D/data" ;; *) echo 5433 ;; esac
END
play setpriv <<'END'
while :; do case $1 in --*) shift ;; *) break ;; esac; done
exec "$@"
END
# A promotion takes effect when the file is there, and goes on if nobody waits for it.
play psql <<'END'
case $* in *pg_promote*) ;; *) exit 0 ;; esac
echo promote >>"$D/did"
[ -e "$D/promotes" ] || exec sleep 60
cat "$D/promotes"; ! grep -q t "$D/promotes" || rm -f "$D/data/standby.signal"
END
play etcdctl <<'END'
case $1 in get) cat "$D/last" ;; put) echo put >>"$D/did"; [ ! -e "$D/put-fails" ] && echo "$3" >"$D/last" ;; esac
END
play tenurectl <<'END'
exec sleep 60
END
play busctl <<'END'
echo 's "held"'
END
play pg_ctlcluster <<'END'
echo "$*" >>"$D/did"
case $* in *fast*) [ ! -e "$D/fast-fails" ] ;; *) : ;; esac
END
# As PostgreSQL's own speaks.
play pg_controldata <<'END'
case ${LC_ALL:-$LANG} in C*) echo "Latest checkpoint's TimeLineID:          $(cat "$D/timeline")" ;; *) echo "TimeLineID des letzten Checkpoints:          $(cat "$D/timeline")" ;; esac
END
begin() { # TIMELINE LAST
	rm -f "$DIR"/did "$DIR"/promotes "$DIR"/*-fails "$DIR"/*.unrecorded "$DIR"/run/*; touch "$DIR/did" "$DIR/data/standby.signal"
	echo "$1" >"$DIR/timeline"; echo "$2" >"$DIR/last"
	sleep 60 & PIDS+=("$!"); echo "$!" >"$DIR/data/postmaster.pid"
}
run() { PATH=$DIR/bin:$PATH timeout 10 sh "$DIR/script" "$1" 15-main >>"$DIR/script.log" 2>&1; }
# Whatever lead has started ends with it, as `tenurectl lock` sees to.
lead() { : >"$DIR/script.log"; start lead env PATH="$DIR/bin:$PATH" setsid sh "$DIR/script" lead 15-main; LEAD=$PID; }
ends() { ! kill -0 "$LEAD"; }
end_of_lead() { wait "$LEAD"; CODE=$?; kill -KILL -- "-$LEAD" 2>/dev/null; }
did() { grep -qE -- "$1" "$DIR/did"; }
leads() { did put && [ "$(cat "$DIR/last")" = "$(cat "$DIR/timeline")" ] && grep -q Primary "$DIR/lead.log"; }

# ---- a host with older data never leads, whatever language it speaks ----
for l in C.UTF-8 de_DE.UTF-8; do
	begin 1 2; echo t >"$DIR/promotes"; export LANG=$l
	lead; until_ok 30 grep -qE 'promote|not leading' "$DIR/did" "$DIR/lead.log"; kill "$LEAD" 2>/dev/null; end_of_lead
	is "older data, $l: it is not promoted" "$(grep -c promote "$DIR/did")" 0
	: >"$DIR/lead.log"
done
export LANG=C.UTF-8
begin '' 2; echo t >"$DIR/promotes"; lead; until_ok 30 grep -qE 'promote|not leading' "$DIR/did" "$DIR/lead.log"; kill "$LEAD" 2>/dev/null; end_of_lead
is "nor is data of which nobody knows how old it is" "$(grep -c promote "$DIR/did")" 0
begin '' 2; rm "$DIR/data/standby.signal"; run prepare
is "which is not started as a standby that could lead either" "$? $(ls "$DIR/data/standby.signal" 2>/dev/null)" "1 "

# ---- a planned switchover ----
begin 2 2; echo t >"$DIR/promotes"; : >"$DIR/lead.log"; lead
until_ok 30 leads && ok "it leads" || not_ok "it leads" "$(cat "$DIR/lead.log")"
kill "$LEAD"; end_of_lead
has "asked to stop, it stops the cluster in the way that sends everything" "$(cat "$DIR/did")" "-m fast .*stop"
is "and only so, and well" "$(grep -c immediate "$DIR/did") $CODE" "0 0"
begin 2 2; echo t >"$DIR/promotes"; : >"$DIR/lead.log"; touch "$DIR/fast-fails"; lead; until_ok 30 leads; kill "$LEAD"; end_of_lead
has "a cluster that does not stop so in time is stopped at once, before the lock is given back" "$(cat "$DIR/did")" "-m immediate .*stop"
has "it has a time for that, shorter than the switchover's" "$(grep fast "$DIR/did")" "-t 1[05]$"

# ---- a promotion that takes its time, and is not wanted any more: without a stop it would be a primary later ----
begin 2 2; lead; until_ok 30 did promote; kill "$LEAD"; until_ok 30 ends || kill -KILL "$LEAD"; end_of_lead
has "told to stop during a promotion, it stops the cluster before the lock is given back" "$(cat "$DIR/did")" "-m .*stop"
begin 2 2; lead; until_ok 30 did promote; kill -KILL "$LEAD"; end_of_lead; run yield
has "killed during a promotion: the unit stops the cluster" "$(cat "$DIR/did")" "-m immediate .*stop"
begin 2 2; echo f >"$DIR/promotes"; lead; until_ok 30 ends; end_of_lead
has "a promotion that PostgreSQL does not wait for any longer: the cluster is stopped before the lock is given back" "$(cat "$DIR/did")" "-m .*stop"
is "and that is a failure" "$CODE" 1
: >"$DIR/did"; touch "$DIR/data/standby.signal"; run prepare; run yield
is "after the next start as a standby it is left alone" "$(cat "$DIR/did")" ""

# ---- a primary that died before its timeline was in the core: another host may have led on a timeline of the same number ----
left() { until_ok 30 did put; kill -KILL -- "-$LEAD"; end_of_lead; }
play pg_rewind <<'END'
echo rewind >>"$D/did"
END
begin 2 2; echo t >"$DIR/promotes"; touch "$DIR/put-fails"; lead; left
for last in 3 4; do
	echo 3 >"$DIR/timeline"; echo "$last" >"$DIR/last"; : >"$DIR/did"; run prepare
	is "another one has led, on timeline $last: it is not started, nor wound back to what only looks like its own history" "$? $(cat "$DIR/did")" "1 "
done
has "and says what to do" "$(cat "$DIR/script.log")" pg_basebackup
echo 2 >"$DIR/last"; run prepare; is "nobody has led: it is started" "$? $(ls "$DIR/data/standby.signal")" "0 $DIR/data/standby.signal"
rm "$DIR/data/standby.signal"; echo 3 >"$DIR/last"; echo 2 >"$DIR/timeline"; run prepare; is "it died before it was promoted: it is started" $? 0
begin 2 2; echo t >"$DIR/promotes"; : >"$DIR/lead.log"; lead; until_ok 30 leads; kill -KILL -- "-$LEAD"; end_of_lead
echo 3 >"$DIR/last"; : >"$DIR/did"; run prepare
is "one whose timeline was in the core is wound back" "$? $(cat "$DIR/did")" "0 rewind"
is "and nothing is left lying about" "$(ls "$DIR" | grep -c unrecorded)" 0

# ---- the core does not take the timeline ----
begin 2 2; echo t >"$DIR/promotes"; : >"$DIR/lead.log"; touch "$DIR/put-fails"; lead
twice() { [ "$(grep -c put "$DIR/did")" -ge 2 ] || ends; }
until_ok 10 twice; rm "$DIR/put-fails"
until_ok 10 leads && ok "the core does not answer: it is asked until the timeline is there" || not_ok "the core does not answer: it is asked until the timeline is there" "$(tail -n 2 "$DIR/lead.log")"
kill "$LEAD" 2>/dev/null; end_of_lead
has "a primary that ends has stopped its cluster" "$(cat "$DIR/did")" "-m .*stop"
finish
