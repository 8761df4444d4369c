#!/usr/bin/env bash
# libtenure as a program meets it: installed below DESTDIR, found by pkg-config, compiled in C99 and C++; what it exports;
# and the first example of its page beside agents that come and go, while cores restart.
# usage: BIN=build/release/bin DIR=build/libtenure-test [ENGINE=etcd] tests/system/libtenure.sh
. "$(dirname "$0")/lib.sh"
wants_plain # pkg-config adds a PKG_CONFIG_SYSROOT_DIR with a blank in it twice
ENGINE=${ENGINE:-core}
TOP=$(cd "$(dirname "$0")/../.." && pwd)
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
LATE=0; [ "$ENGINE" = core ] || LATE=2

# ---- installed, and compiled ----
MODE=$(basename "$(dirname "$(cd "$BIN" && pwd)")")
make -s -C "$TOP" MODE="$MODE" DESTDIR="$PLAIN/root" PREFIX=/usr install >"$DIR/install.log" 2>&1 && ok "it is installed" || not_ok "it is installed" "$(tail -n 2 "$DIR/install.log")"
export PKG_CONFIG_PATH=$PLAIN/root/usr/lib/pkgconfig PKG_CONFIG_SYSROOT_DIR=$PLAIN/root LD_LIBRARY_PATH=$PLAIN/root/usr/lib
read -ra FLAGS < <(pkg-config --cflags --libs libtenure)
is "pkg-config knows its version" "$(pkg-config --modversion libtenure)" "$("$BIN/tenured" --version | awk '{print $2; exit}')"
printf '#include <tenure.h>\nint main(void) { return tenure_version() == 0; }\n' >"$DIR/h.c"
for std in c99 gnu11; do
	gcc "-std=$std" -pedantic -Wall -Wextra -Werror -o "$DIR/h" "$DIR/h.c" "${FLAGS[@]}" >"$DIR/h.log" 2>&1 && "$DIR/h" && ok "its header in $std" || not_ok "its header in $std" "$(head -n 2 "$DIR/h.log")"
done
g++ -x c++ -std=c++11 -pedantic -Wall -Wextra -Werror -o "$DIR/h" "$DIR/h.c" -x none "${FLAGS[@]}" >"$DIR/h.log" 2>&1 && "$DIR/h" && ok "its header in C++" || not_ok "its header in C++" "$(head -n 2 "$DIR/h.log")"

exported() { nm -D --defined-only "$PLAIN/root/usr/lib/libtenure.so.0" | awk '$2 != "A" {sub(/@.*/, "", $3); print $3}' | sort; }
is "the library exports exactly the symbols of its list" "$(exported)" "$(sed -n 's/^\t\(tenure_[a-z_]*\);$/\1/p' "$TOP/lib/tenure/libtenure.sym" | sort)"
is "each function that it exports is declared" "$(for f in $(exported); do grep -qE "\b$f\(" "$TOP/lib/tenure/tenure.h" || echo "$f"; done)" ""
is "each function that it declares is exported" "$(grep -oE '\btenure_[a-z_]+\(' "$TOP/lib/tenure/tenure.h" | tr -d '(' | sort -u | comm -23 - <(exported))" ""
is "each is in a manual page" "$(for f in $(exported); do grep -qE "\b$f\b" "$TOP"/lib/tenure/*.3 || echo "$f"; done)" ""
is "the header names no library below" "$(grep -oiE 'libev|nghttp2|protobuf|json-c|sd_bus' "$TOP/lib/tenure/tenure.h")" ""

# ---- the first example, as the page has it ----
example() { # NAME: compiled from the shipped one
	gcc -std=gnu11 -Wall -Wextra -Werror -o "$DIR/$1" "$TOP/conf/examples/libtenure/$1.c" "${FLAGS[@]}" >"$DIR/$1.cc.log" 2>&1 || not_ok "$1.c compiles" "$(head -n 3 "$DIR/$1.cc.log")"
}
example members
page() { # N: compiled from the example number N of the page
	sed 's/\\en/\\n/g; s/\\&//g' "$TOP/lib/tenure/libtenure.3" | awk -v n="$1" '/^#include <stdio.h>/ {i++; on = i == n} on; /^}/ {on = 0}' >"$DIR/page$1.c"
	gcc -std=gnu11 -Wall -Wextra -Werror -o "$DIR/page$1" "$DIR/page$1.c" "${FLAGS[@]}" >"$DIR/page$1.log" 2>&1 && ok "example $1 of libtenure(3) compiles" || not_ok "example $1 of libtenure(3) compiles" "$(head -n 2 "$DIR/page$1.log")"
}
page 1
page 2

core core "$a" "$ap"; CORE=$PID
serves "$a"
says() { grep -c "^$1" "$DIR/members.log"; }
has_said() { [ "$(says "$1")" -ge "$2" ]; }
page_has_said() { grep -q "^$2" "$DIR/$1.log"; }
LOG() { sed 's/ 127[^ ]*$//; s/ 192[^ ]*$//; s/revision .*/revision/' "$DIR/members.log" | awk '{print $1, $2, $3, $4, $5}' | sed 's/ *$//' | tr '\n' ','; }

DBUS_SYSTEM_BUS_ADDRESS=unix:path=/nonexistent timeout 1 "$DIR/members" >"$DIR/none.log" 2>&1; is "without an endpoint a tie waits for the agent" "$? $(cat "$DIR/none.log")" "124 "
TENURE_ENDPOINTS=nowhere "$DIR/members" >"$DIR/bad.log" 2>&1; has "an endpoint that is no URL is named" "$(cat "$DIR/bad.log")" "'nowhere' is not a URL"
TENURE_ENDPOINTS=http://127.0.0.1:$ap:$a "$DIR/members" >"$DIR/bad.log" 2>&1; has "an endpoint with two ports is refused" "$(cat "$DIR/bad.log")" "is not a URL"


# The second example of the page: two of them see each other, act, and one hears of the other's death.
start web1 env TENURE_ENDPOINTS="http://127.0.0.1:$a" stdbuf -oL "$DIR/page2" web1; W1=$PID
until_ok 5 page_has_said web1 "at work" && ok "a program that has joined acts" || not_ok "a program that has joined acts" "$(cat "$DIR/web1.log")"
start web2 env TENURE_ENDPOINTS="http://127.0.0.1:$a" stdbuf -oL "$DIR/page2" web2; W2=$PID
until_ok 5 page_has_said web1 "web2 joined" && until_ok 5 page_has_said web2 "web1 joined" && ok "and is seen by the others, as it sees them" || not_ok "and is seen by the others" "$(cat "$DIR/web1.log" "$DIR/web2.log")"
kill -9 "$W2"; wait "$W2" 2>/dev/null
until_ok $((5 + LATE)) page_has_said web1 "web2 left: stopped" && ok "until it dies" || not_ok "until it dies" "$(tail -n 3 "$DIR/web1.log")"
kill "$W1"; wait "$W1" 2>/dev/null

agent h1 TTL=20s; H1=$PID; until_ok 10 held h1 # longer than a core takes to restart
start members env TENURE_ENDPOINTS="http://127.0.0.1:$a" "$DIR/members"; M=$PID
until_ok 15 has_said synced 1 && ok "who is there, and then the word that this is all" || not_ok "who is there" "$(cat "$DIR/members.log")"
agent h2 TTL=20s; H2=$PID
until_ok 10 has_said "joined h2" 1 && ok "who joins" || not_ok "who joins" "$(cat "$DIR/members.log")"
kill "$H2"; wait "$H2"
until_ok 15 has_said "left h2: left" 1 && ok "who leaves, and why" || not_ok "who leaves" "$(cat "$DIR/members.log")"
agent h3; H3=$PID; until_ok 10 has_said "joined h3" 1
kill -9 "$H3"; wait "$H3" 2>/dev/null
until_ok $((10 + LATE)) has_said "left h3: expired" 1 && ok "who dies, and that it expired" || not_ok "who dies" "$(cat "$DIR/members.log")"

# The core goes, and what happens meanwhile comes after it is back.
kill "$CORE"; wait "$CORE" 2>/dev/null
agent h4 TTL=20s; H4=$PID
core core "$a" "$ap"; CORE=$PID; serves "$a"
until_ok 20 has_said "joined h4" 1 && ok "a core that restarts, and who has come since" || not_ok "a core that restarts" "$(tail -n 3 "$DIR/members.log")"
until_ok 20 has_said synced 2 && ok "it says that it follows again" || not_ok "it says that it follows again" "$(tail -n 3 "$DIR/members.log")"
is "each once, and in order" "$(LOG | sed 's/synced at revision,//g')" "joined h1,joined h2,left h2: left,joined h3,left h3: expired,joined h4,"
cpu() { awk '{print $14 + $15}' "/proc/$1/stat"; }
before=$(cpu $M); until_ok 3 false; spent=$(($(cpu $M) - before))
[ "$spent" -le 3 ] && ok "with nothing to report it does next to nothing ($spent ticks in 3 s)" || not_ok "with nothing to report it does next to nothing" "$spent ticks in 3 s"
is "the library starts no thread" "$(ls "/proc/$M/task" | wc -l)" 1
kill "$H1" "$H4" "$M" "$CORE"
finish
