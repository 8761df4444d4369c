#!/usr/bin/env bash
# What supervises the commands of tenurectl lock and work: when it is stopped, cannot see them, or has many to end in time.
# usage: BIN=build/release/bin DIR=build/job-test tests/system/job.sh
. "$(dirname "$0")/lib.sh"
ENGINE=core
read -r a ap < <(free_ports 2)
. "$(dirname "$0")/agents_lib.sh"
core core "$a" "$ap"; CORE=$PID; serves "$a"
# A place that outlives a core that is stopped for a moment.
agent h1 TTL=30s
until_ok 10 held h1 || not_ok "h1 holds its place"
# It lets everybody take a lock that is called allowed.
start polkit "$(dirname "$BIN")/tests/system/bus_load" "unix:abstract=tenure-agents-$$-h1" polkit; until_ok 10 grep -q ready "$DIR/polkit.log" || not_ok "polkit's stand-in runs"
if /usr/bin/python3 "$(dirname "$0")/job.py" "$BIN" "unix:abstract=tenure-agents-$$-h1" "$CORE" "$a" "$DIR" >"$DIR/job.log" 2>&1; then :; else echo "not ok job.py" >>"$DIR/job.log"; fi
while read -r line; do case $line in "ok "*) ok "${line#ok }" ;; "skipped "*) line=${line#skipped }; skip "${line%%: *}" "${line#*: }" ;; "not ok "*) not_ok "${line#not ok }" "$(tail -n 3 "$DIR/job.log" | tr '\n' ' ')" ;; esac; done <"$DIR/job.log"
finish
