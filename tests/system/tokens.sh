#!/usr/bin/env bash
# Fencing tokens, and the shipped examples of resources that check them: a file, and a real PostgreSQL, in which a holder that wakes
# up late changes nothing.
# usage: BIN=build/release/bin DIR=build/tokens-test [ENGINE=etcd] tests/system/tokens.sh
. "$(dirname "$0")/lib.sh"
ENGINE=${ENGINE:-core}
EXAMPLES=$(realpath "$(dirname "$0")/../../conf/examples/tokens") SO=$(realpath "$BIN/../so") HEADER=$(realpath "$(dirname "$0")/../../lib/tenure")
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; serves "$a"
agent h1 TTL=30s; H1=$PID; until_ok 10 held h1 || not_ok "h1 holds its place"

# ---- a file ----
gcc -std=gnu11 -Wall -Wextra -Werror -o "$DIR/append" "$EXAMPLES/append.c" 2>"$DIR/append.cc" && ok "append.c compiles" || not_ok "append.c compiles" "$(head -n 3 "$DIR/append.cc")"
F=$DIR/file
append() { "$DIR/append" "$F" "$@" 2>"$DIR/said"; echo $?; }
is "a file: the first" "$(append 7 first)" 0
is "a file: a larger token" "$(append 9 second)" 0
is "a file: a smaller one is refused" "$(append 7 late)" 3; has "a file: and says so" "$(cat "$DIR/said")" "the token 7 is refused: .* has seen 9"
is "a file: the same one goes on" "$(append 9 third)" 0
printf '12 what a crash has le' >>"$F"
is "a file: half a line has never been" "$(append 10 fourth; cat "$F")" "0
7 first
9 second
9 third
10 fourth"
is "a file: none" "$(append 0 x; append x x; append 11 "$(printf 'two\nlines')")" "1
1
1"
# A number that is not wholly understood is no token: taken for the largest one, it would lock everybody out.
for t in 99999999999999999999 9223372036854775808 12x ' 12' +12 0x12 -12 ''; do is "a file: no token: \"$t\"" "$(append "$t" x)" 1; done
is "a file: it is as it was" "$(tail -n 1 "$F")" "10 fourth"
cp "$F" "$DIR/odd"; echo '99999999999999999999 x' >>"$DIR/odd"; is "a file: nor in the file" "$("$DIR/append" "$DIR/odd" 11 x 2>/dev/null; echo $?)" 1
cp "$F" "$DIR/odd"; echo '11x' >>"$DIR/odd"; is "a file: nor a line that begins with something else" "$("$DIR/append" "$DIR/odd" 11 x 2>/dev/null; echo $?)" 1
head -c 20000 /dev/zero >"$DIR/other"; printf 'no token\n' >"$DIR/text"
is "a file of something else is refused" "$("$DIR/append" "$DIR/other" 5 x 2>"$DIR/said"; echo $?; "$DIR/append" "$DIR/text" 5 x 2>>"$DIR/said"; echo $?; cat "$DIR/said"; stat -c %s "$DIR/other"; cat "$DIR/text")" "1
1
append: $DIR/other: Bad message.
append: $DIR/text: Bad message.
20000
no token"
# While another writer is between its look and its write.
exec 8<"$F"; flock 8
start waits "$DIR/append" "$F" 30 late 8<&-; W=$PID
until_ok 5 grep -qE -- "-> FLOCK .*:$(stat -c %i "$F") " /proc/locks && ok "a file: a writer waits for the one before it" || not_ok "a file: a writer waits for the one before it" "$(cat /proc/locks)"
echo "40 next" >>"$F"; exec 8<&-
wait "$W"; is "a file: and is refused if that had a larger token" $? 3
is "a file: which it has not touched" "$(tail -n 1 "$F")" "40 next"
: >"$F"
for w in 1 2 3 4; do
	# shellcheck disable=SC2016
	start "writer$w" bash -c 'for i in $(seq 150); do "$0" "$1" $((i + RANDOM % 40)) "by $2"; done; exit 0' "$DIR/append" "$F" $w
	WRITERS+=("$PID")
done
for p in "${WRITERS[@]}"; do wait "$p"; done
is "a file: four at once: no token after a larger one" "$(sort -snc -k1,1 "$F" 2>&1 && wc -l <"$F" | awk '{print ($1 >= 20)}')" 1
has "a file: and those that came late were refused" "$(cat "$DIR"/writer?.log)" "is refused"

# ---- PostgreSQL ----
for PGBIN in /usr/lib/postgresql/*/bin; do :; done
if [ ! -x "$PGBIN/postgres" ] || ! pkg-config --exists libpq; then
	skip "tokens in PostgreSQL" "postgresql or libpq-dev is not installed"; finish; exit
fi
PG=$(mktemp -d /tmp/tenure-tokens.XXXXXX)
AS=(); [ "$(id -u)" != 0 ] || { AS=(setpriv --reuid=postgres --regid=postgres --clear-groups); chown postgres "$PG"; }
down() { kill -INT "${POSTGRES:-0}" 2>/dev/null; wait "${POSTGRES:-}" 2>/dev/null; cleanup; rm -rf "$PG"; }
POSTGRES=
trap '[ -z "$POSTGRES" ] || down; cleanup; rm -rf "$PG"' EXIT
(cd "$PG" && "${AS[@]}" "$PGBIN/initdb" -D "$PG/data" -U postgres -A trust --no-sync >"$DIR/initdb.log" 2>&1) || { not_ok "initdb" "$(tail -n 3 "$DIR/initdb.log")"; finish; exit 1; }
start postgres "${AS[@]}" "$PGBIN/postgres" -D "$PG/data" -k "$PG" -c listen_addresses= -c fsync=off -c shared_buffers=16MB -c max_wal_senders=0 -c wal_level=minimal; POSTGRES=$PID
until_ok 20 "$PGBIN/pg_isready" -q -h "$PG" -U postgres || { not_ok "PostgreSQL starts" "$(tail -n 3 "$DIR/postgres.log")"; finish; exit 1; }
"$PGBIN/createdb" -h "$PG" -U postgres bank
export PGHOST=$PG PGUSER=postgres PGDATABASE=bank
sql() { psql -XAtq -v ON_ERROR_STOP=1 -c "$1" 2>&1; }
psql -Xq -v ON_ERROR_STOP=1 -f "$EXAMPLES/tokens.sql" >"$DIR/sql.log" 2>&1 && ok "tokens.sql" || not_ok "tokens.sql" "$(cat "$DIR/sql.log")"
sql "CREATE TABLE ledger (id bigserial PRIMARY KEY, token bigint, writer text); ALTER DATABASE bank SET idle_in_transaction_session_timeout = '2s'"
seen() { sql "SELECT token FROM tenure.tokens WHERE resource = '$1'"; }
# session NAME: a psql that does what `say NAME SQL` says; what comes of it is in $DIR/NAME.log. Its transactions stay open between
# two lines, however slow this machine is.
session() {
	mkfifo "$DIR/$1.in"
	PGOPTIONS='-c idle_in_transaction_session_timeout=60s' psql -XAtq -v VERBOSITY=verbose -f - <>"$DIR/$1.in" >"$DIR/$1.log" 2>&1 &
	PIDS+=("$!")
}
N=0
say() { echo "$2" 1<>"$DIR/$1.in"; } # also to a psql that is gone: did() tells of it
asked() { N=$((N + 1)); say "$1" "$2"; say "$1" "SELECT 'did $N';"; }
did() { until_ok 10 grep -q "did $N$" "$DIR/$1.log" || not_ok "$1 answers" "$(tail -n 3 "$DIR/$1.log")"; }
does() { asked "$1" "$2"; did "$1"; }
waits() { [ "$(psql -XAtq -c "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'")" = "$1" ]; }
lines() { wc -l <"$DIR/$1.log"; }
last() { tail -n "+$(($2 + 1))" "$DIR/$1.log"; }
export PGOPTIONS=
session old; session new

does old "SELECT tenure.check_token('r', 5);"; is "a first token is remembered" "$(seen r)" 5
does new "SELECT tenure.check_token('r', 7);"; is "a larger token is remembered" "$(seen r)" 7
at=$(lines old); does old "SELECT tenure.check_token('r', 5);"; has "the old holder, late, is refused" "$(last old "$at")" "ERROR: +TN001: the token 5 for the resource \"r\" is refused: 7 has been seen"
is "another resource is another one" "$(sql "SELECT 'fine' FROM tenure.check_token('s', 5)")" fine
has "no token is refused" "$(sql "SELECT tenure.check_token('r', NULL)")" "there is no token for the resource"

# Two at once, at read committed.
asked old "BEGIN; SELECT tenure.check_token('r', 8); INSERT INTO ledger (token) VALUES (8);"; did old
asked new "BEGIN; SELECT tenure.check_token('r', 9); INSERT INTO ledger (token) SELECT 1000 * count(*) FROM ledger; COMMIT;"
until_ok 5 waits 1 && ok "the next holder waits until the old one's transaction has ended" || not_ok "the next holder waits" "$(tail -n 2 "$DIR/new.log")"
say old "COMMIT;"; did new
is "the next holder sees the old one's writes" "$(sql 'SELECT max(token) FROM ledger')" 1000
asked new "BEGIN; SELECT tenure.check_token('r', 11);"; did new
at=$(lines old); asked old "BEGIN; SELECT tenure.check_token('r', 10); INSERT INTO ledger (token) VALUES (10); COMMIT;"
until_ok 5 waits 1; say new "COMMIT;"; did old
has "an old one that has waited for a larger one is refused" "$(last old "$at")" "TN001: the token 10 .* refused: 11 has been seen"
is "the refused holder has written nothing" "$(sql 'SELECT count(*) FROM ledger WHERE token = 10')" 0
asked new "BEGIN; SELECT tenure.check_token('r', 20); INSERT INTO ledger (token) VALUES (20);"; did new
at=$(lines old); asked old "BEGIN; SELECT tenure.check_token('r', 12); COMMIT;"; until_ok 5 waits 1; say new "ROLLBACK;"; did old
is "a larger token that was rolled back leaves no trace" "$(seen r) $(last old "$at" | grep -c TN001)" "12 0"
asked old "BEGIN; SELECT tenure.check_token('r', 12);"; did old
does new "BEGIN; SELECT tenure.check_token('r', 12); COMMIT;"; ok "two transactions of one holder do not wait for each other"
say old "COMMIT;"
at=$(lines old); does old "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;"; does new "SELECT tenure.check_token('r', 13);"; does old "SELECT tenure.check_token('r', 12); COMMIT;"
has "at repeatable read it is refused, too" "$(last old "$at")" "40001|TN001"

# A snapshot is older than what it has waited for: a new holder's first transaction would not see what the old one has left.
refused_or_waits() { last new "$1" | grep -q TN003 || waits 1; }
for level in "REPEATABLE READ" SERIALIZABLE; do
	sql "TRUNCATE ledger; DELETE FROM tenure.tokens WHERE resource = 'snap'; SELECT tenure.check_token('snap', 5)" >/dev/null
	does old "BEGIN; SELECT tenure.check_token('snap', 5); INSERT INTO ledger (token) VALUES (5);"
	at=$(lines new); asked new "BEGIN ISOLATION LEVEL $level; SELECT tenure.check_token('snap', 6); INSERT INTO ledger (token) SELECT 1000 + count(*) FROM ledger; COMMIT;"
	until_ok 5 refused_or_waits "$at"; say old "COMMIT;"; did new
	is "$level: a new token is not begun with, and nothing is written by what was there before" "$(last new "$at" | grep -c TN003) $(sql 'SELECT max(token) FROM ledger')" "1 5"
	is "$level: by a transaction of its own it is" "$(sql "SELECT tenure.check_token('snap', 6)"; PGOPTIONS="-c default_transaction_isolation=${level/ /\\ }" sql "SELECT tenure.check_token('snap', 6); INSERT INTO ledger (token) SELECT 1000 + count(*) FROM ledger"; sql 'SELECT max(token) FROM ledger')" "

1001"
done
sql "TRUNCATE ledger" >/dev/null

# A busy old holder, one transaction after the other, does not keep the new one out.
does old "SELECT tenure.check_token('busy', 5);"; asked old "BEGIN; SELECT tenure.check_token('busy', 5);"; did old
asked new "BEGIN; SELECT tenure.check_token('busy', 6);"; until_ok 5 waits 1
has "while a larger token waits, no more transactions with a smaller one begin" "$(sql "SET statement_timeout = '300ms'; SELECT 'began' FROM tenure.check_token('busy', 5)")" "statement timeout"
say old "COMMIT;"; did new; say new "COMMIT;"

# Who may lower a token: nobody but the owner, also where ALTER DEFAULT PRIVILEGES gives tables away.
sql "CREATE ROLE careless LOGIN" >/dev/null; "$PGBIN/createdb" -h "$PG" -U postgres given
PGDATABASE=given sql "ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO careless; ALTER DEFAULT PRIVILEGES GRANT SELECT, UPDATE ON TABLES TO PUBLIC"
install() { PGDATABASE=given psql -Xq -v ON_ERROR_STOP=1 -f "$EXAMPLES/tokens.sql" 2>&1; }
is "default privileges: tokens.sql" "$(install)" ""
PGDATABASE=given sql "GRANT USAGE ON SCHEMA tenure TO careless; SELECT tenure.check_token('r', 9)" >/dev/null
for s in "UPDATE tenure.tokens SET token = 1" "DELETE FROM tenure.tokens" "TRUNCATE tenure.tokens"; do
	has "default privileges do not let a role say $s" "$(PGDATABASE=given PGUSER=careless sql "$s")" "permission denied for table tokens"
done
is "tokens.sql may be run again, and the tokens stay" "$(install; PGDATABASE=given sql "SELECT token FROM tenure.tokens")" 9
PGDATABASE=given sql "GRANT SELECT ON tenure.tokens TO careless" >/dev/null
is "and whoever may read them, for a monitor, still may" "$(install; PGDATABASE=given PGUSER=careless sql "SELECT token FROM tenure.tokens")" 9
sql 'CREATE ROLE "Bank-Owner" LOGIN' >/dev/null; "$PGBIN/createdb" -h "$PG" -U postgres -O Bank-Owner owned
is "a database's owner may run it, and again, whatever the name" "$(PGUSER=Bank-Owner PGDATABASE=owned sql 'ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO "Bank-Owner", careless'; for _ in 1 2; do PGUSER=Bank-Owner psql -Xq -v ON_ERROR_STOP=1 -d owned -f "$EXAMPLES/tokens.sql" 2>&1; done)" ""
# An operator that fits better than PostgreSQL's own would run with the rights of whoever runs tokens.sql.
PGDATABASE=given sql "CREATE FUNCTION public.trap(oid, name) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END'; CREATE FUNCTION public.trap(oid, regrole) RETURNS boolean LANGUAGE plpgsql AS 'BEGIN RAISE ''trapped''; END'; CREATE OPERATOR public.<> (LEFTARG = oid, RIGHTARG = regrole, FUNCTION = public.trap)"
is "whoever may create operators does not get them run by it" "$(install)" ""
PGDATABASE=given sql "ALTER SCHEMA tenure OWNER TO careless"
has "but not on a schema that somebody else has put there" "$(install)" "belongs to another role than postgres"

# The trigger.
sql "CREATE TABLE guarded (n int); CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON guarded FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('g')"
has "a table with the trigger: nothing without a token" "$(sql 'INSERT INTO guarded VALUES (1)')" "there is no token for the resource \"g\""
is "a table with the trigger: a write with a token" "$(PGOPTIONS='-c tenure.token=5' sql 'INSERT INTO guarded VALUES (1)'; PGOPTIONS='-c tenure.token=6' sql 'UPDATE guarded SET n = 2')" ""
for s in 'INSERT INTO guarded VALUES (3)' 'UPDATE guarded SET n = 3' 'DELETE FROM guarded' 'TRUNCATE guarded' "COPY guarded FROM PROGRAM 'echo 3'"; do
	has "a table with the trigger: no ${s%% *} with an older token" "$(PGOPTIONS='-c tenure.token=5' sql "$s")" "the token 5 for the resource \"g\" is refused"
done
is "a table with the trigger: refused writes changed nothing" "$(sql 'SELECT n FROM guarded')" 2
# A program with two locks: a token of one is not stored for the other, whose next holder may have a smaller one.
sql "CREATE TABLE second (n int); CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON second FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('g2', 'tenure.token_g2')"
is "two locks: each table has its own token" "$(PGOPTIONS='-c tenure.token=6 -c tenure.token_g2=9' sql 'INSERT INTO second VALUES (1); UPDATE guarded SET n = 2'; seen g; seen g2)" "6
9"
has "two locks: the other one's does not do" "$(PGOPTIONS='-c tenure.token=9' sql 'INSERT INTO second VALUES (1)')" "there is no token for the resource \"g2\""
# By other ways to the table.
sql "CREATE TABLE parent (id int PRIMARY KEY); CREATE TABLE child (n int PRIMARY KEY, id int REFERENCES parent ON DELETE CASCADE ON UPDATE CASCADE); CREATE VIEW view AS SELECT * FROM child;
	CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON child FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('c'); INSERT INTO parent VALUES (1), (2)"
PGOPTIONS='-c tenure.token=6' sql 'INSERT INTO child VALUES (1, 1)'
WAYS=('DELETE FROM parent' 'UPDATE parent SET id = 3 WHERE id = 1' 'TRUNCATE parent CASCADE' 'UPDATE view SET n = 2' 'INSERT INTO child VALUES (1, 1) ON CONFLICT (n) DO UPDATE SET id = 2' 'WITH w AS (DELETE FROM child RETURNING n) SELECT n FROM w')
[ "$("$PGBIN/postgres" -V | sed 's/[^0-9]*\([0-9]*\).*/\1/')" -lt 15 ] || WAYS+=('MERGE INTO child USING parent ON child.id = parent.id WHEN MATCHED THEN DELETE')
for s in "${WAYS[@]}"; do has "with an older one: no $s" "$(PGOPTIONS='-c tenure.token=5' sql "$s")" "the token 5 for the resource \"c\" is refused"; done
is "it is as it was, too" "$(sql 'SELECT n, id FROM child')" "1|1"
# What a pooled connection keeps: nothing of SET LOCAL.
does old "BEGIN; SET LOCAL tenure.token = 6; UPDATE child SET n = 2; COMMIT;"; at=$(lines old); does old "UPDATE child SET n = 3;"
has "a token of SET LOCAL is gone with its transaction" "$(last old "$at")" TN002
for t in 9223372036854775808 0x10 1e3 -5 abc 9.0; do has "no token: $t" "$(sql "SET tenure.token = '$t'; UPDATE child SET n = 3")" "out of range|invalid input syntax|there is no token"; done
has "tokens beyond 2^53 are not rounded" "$(sql "SET tenure.token = '9007199254740993'; UPDATE child SET n = 2; SET tenure.token = '9007199254740992'; UPDATE child SET n = 3")" "9007199254740992 .* refused: 9007199254740993"
sql "CREATE ROLE teller LOGIN; GRANT ALL ON guarded TO teller"
has "a role that was not let in cannot lock others out" "$(PGUSER=teller sql "SELECT tenure.check_token('g', 99)")" "permission denied for schema tenure"
is "that role can write what it may, with a token" "$(PGUSER=teller PGOPTIONS='-c tenure.token=6' sql 'UPDATE guarded SET n = 4')" ""

# Statement triggers are of the table that a statement names; row triggers come to the partitions, those to come as well.
sql "CREATE TABLE parted (n int, part int) PARTITION BY LIST (part); CREATE TABLE parted1 PARTITION OF parted FOR VALUES IN (1);
	CREATE TRIGGER token BEFORE INSERT OR UPDATE OR DELETE OR TRUNCATE ON parted FOR EACH STATEMENT EXECUTE FUNCTION tenure.require_token('p');
	CREATE TRIGGER token_row AFTER INSERT OR UPDATE OR DELETE ON parted FOR EACH ROW EXECUTE FUNCTION tenure.require_token('p');
	CREATE TABLE parted2 PARTITION OF parted FOR VALUES IN (2)"
is "partitions: with a token" "$(PGOPTIONS='-c tenure.token=6' sql 'INSERT INTO parted VALUES (1, 1), (2, 2)')" ""
for s in 'INSERT INTO parted VALUES (3, 1)' 'UPDATE parted SET part = 2 WHERE part = 1' 'DELETE FROM parted' 'TRUNCATE parted' 'INSERT INTO parted2 VALUES (3, 2)' 'UPDATE parted1 SET n = 3' 'DELETE FROM parted2' "COPY parted2 FROM PROGRAM 'echo 3 2 | tr \" \" \"\\t\"'"; do
	has "partitions, with an older one: no $s" "$(PGOPTIONS='-c tenure.token=5' sql "$s")" "the token 5 for the resource \"p\" is refused"
done
is "partitions: they are as they were" "$(sql 'SELECT n, part FROM parted ORDER BY n')" "1|1
2|2"
sql "GRANT ALL ON parted TO teller"
has "a role with rights on the partitioned table alone cannot name a partition" "$(PGUSER=teller PGOPTIONS='-c tenure.token=5' sql 'TRUNCATE parted1')" "permission denied for table parted1"

# Many, at random: each takes a number, waits for a moment, and writes with it or rolls back.
sql "TRUNCATE ledger; CREATE SEQUENCE numbers START 100"
for _ in $(seq 150); do
	echo "SELECT nextval('numbers') - (random() * 6)::int AS n \gset"
	echo "SELECT pg_sleep(random() * 0.004) \g /dev/null"
	echo "BEGIN; SELECT tenure.check_token('many', :n) \g /dev/null"
	echo "INSERT INTO ledger (token) VALUES (:n);"
	echo "SELECT CASE WHEN random() < 0.2 THEN 'ROLLBACK' ELSE 'COMMIT' END AS e \gset"
	echo ":e;"
done >"$DIR/many.sql"
MANY=()
for w in 1 2 3 4; do start "many$w" psql -Xq -f "$DIR/many.sql"; MANY+=("$PID"); done
for p in "${MANY[@]}"; do wait "$p"; done
is "600 transactions of 4 sessions: none after a larger token" "$(sql 'SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM ledger) AS l WHERE token < before')" 0
is "the remembered token is the largest committed one" "$(seen many)" "$(sql 'SELECT max(token) FROM ledger')"
refused=$(cat "$DIR"/many?.log | grep -c 'is refused'); wrote=$(sql 'SELECT count(*) FROM ledger')
[ "$refused" -gt 5 ] && [ "$wrote" -gt 50 ] && ok "$wrote were written, $refused refused" || not_ok "some are written and some refused" "$wrote, $refused"
is "there was no deadlock" "$(cat "$DIR"/many?.log | grep -c deadlock)" 0

# ---- real holders ----
sql 'TRUNCATE ledger'
read -ra LIBPQ < <(pkg-config --cflags --libs libpq)
gcc -std=gnu11 -Wall -Wextra -Werror -o "$DIR/ledger" "$EXAMPLES/ledger.c" -I"$HEADER" -L"$SO" -ltenure -Wl,-rpath,"$SO" "${LIBPQ[@]}" 2>"$DIR/ledger.cc" && ok "ledger.c compiles" || not_ok "ledger.c compiles" "$(head -n 3 "$DIR/ledger.cc")"
# Tokens of tenurectl and of libtenure compare, whoever came first: here tenurectl waits, then the program, and both get their turn.
waiters() { [ "$(E get ledger/ --prefix --keys-only | grep -c ledger)" = "$1" ]; }
start first timeout 60 etcdctl --endpoints "127.0.0.1:$a" lock ledger -- sleep 60; FIRST=$PID; until_ok 5 waiters 1
# shellcheck disable=SC2016
start second timeout 60 "$BIN/tenurectl" --bus="unix:abstract=tenure-agents-$$-h1" lock ledger -- sh -c 'echo "$TENURE_TOKEN" >"$0"; PGOPTIONS="-c tenure.token=$TENURE_TOKEN" exec psql -XAtq -c "SELECT tenure.check_token('"'ledger'"', $TENURE_TOKEN); INSERT INTO ledger (token, writer) VALUES ($TENURE_TOKEN, '"'h1'"')"' "$DIR/second.token"
SECOND=$PID; until_ok 5 waiters 2
writer() { start "ledger.$1" env TENURE_ENDPOINTS="http://127.0.0.1:$a" "$DIR/ledger" dbname=bank "$1"; }
writer a; A=$PID; until_ok 5 waiters 3
kill "$FIRST"; wait "$SECOND"; is "a job under tenurectl lock writes with its token" "$?" 0
n_lines() { grep -c "$2" "$DIR/ledger.$1.log"; }
more() { [ "$(n_lines "$1" "$2")" -gt "$3" ]; }
until_ok 10 more a wrote 0 && ok "and after it the program with its own" || not_ok "and after it the program with its own" "$(tail -n 3 "$DIR/ledger.a.log")"
has "the second holder's token is larger" "$(awk -v t="$(cat "$DIR/second.token")" '/^my turn/ {print ($4 > t)}' "$DIR/ledger.a.log" | head -n 1)" 1
# Each in its turn is stopped beyond its lease's time, while it is about to write, most of the time.
writer b; B=$PID; until_ok 5 waiters 2
token_of() { awk '/^my turn/ { t = $4 } END { print t + 0 }' "$DIR/ledger.$1.log"; }
late=0
for round in 1 2 3 4 5 6; do
	# Whose turn it is; a busy machine changes that, too.
	if [ "$(token_of b)" -lt "$(token_of a)" ]; then here=a other=b pid=$A; else here=b other=a pid=$B; fi
	n=$(n_lines "$other" '^wrote') r=$(n_lines "$here" '^refused') t=$(n_lines "$here" '^not my turn')
	kill -STOP "$pid"
	until_ok 15 more "$other" '^wrote' "$n" || not_ok "round $round: $other takes over" "$(tail -n 2 "$DIR/ledger.$other.log")"
	kill -CONT "$pid"; until_ok 10 more "$here" '^not my turn' "$t" || not_ok "round $round: $here learns that its turn is over" "$(tail -n 2 "$DIR/ledger.$here.log")"
	late=$((late + $(n_lines "$here" '^refused') - r))
	[ "$late" -lt 2 ] || break
done
[ "$late" -ge 1 ] && ok "an old holder that woke up late was refused by the table, $late times in $round rounds" || not_ok "an old holder that woke up late was refused" "never, in $round rounds"
is "always: in the ledger no token comes after a larger one" "$(sql 'SELECT count(*) FROM (SELECT token, lag(token) OVER (ORDER BY id) AS before FROM ledger) AS l WHERE token < before')" 0
kill "$A" "$B" "$H1"; finish
