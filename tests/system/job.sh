#!/usr/bin/env bash
# tenurectl lock and work as jobs of somebody's: signals at each stage of their lives, a standard error that nobody reads,
# descriptors that are closed, and a terminal that goes away.
# usage: BIN=build/release/bin DIR=build/job-test tests/system/job.sh
. "$(dirname "$0")/lib.sh"
ENGINE=core
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; CORE=$PID; serves "$a"
# A place that outlives a core that is stopped for a moment.
agent h1 TTL=30s; agent h2 TTL=30s
until_ok 10 held h1 || not_ok "h1 holds its place"; until_ok 10 held h2 || not_ok "h2 holds its place"
if /usr/bin/python3 "$(dirname "$0")/job.py" "$BIN" "unix:abstract=tenure-agents-$$-h1" "unix:abstract=tenure-agents-$$-h2" "$CORE" "$a" "$DIR" >"$DIR/job.log" 2>&1; then :; else echo "not ok job.py" >>"$DIR/job.log"; fi
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "skipped "*) skip "${line#skipped }" "" ;; "not ok "*) not_ok "${line#not ok }" "$(tail -n 3 "$DIR/job.log" | tr '\n' ' ')" ;; esac; done <"$DIR/job.log"
finish
