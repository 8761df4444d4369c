# Whether this machine can boot hosts (rig.sh). Source it, after lib.sh.
# shellcheck shell=bash

# A host needs seven inotify instances, all of root's; one that gets none does not boot, without an error.
room_for() { [ $(($(cat /proc/sys/fs/inotify/max_user_instances) - $(find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | wc -l))) -ge $(($1 * 7 + 2)) ]; }

# hosts_can N: for so many; ends the test, skipped with the reason, where it cannot.
hosts_can() {
	local why= i
	[ "$(id -u)" = 0 ] || why="needs root"
	command -v systemd-nspawn >/dev/null || why="no systemd-container here"
	findmnt -rn -t cgroup2 >/dev/null || why="no cgroup2 is mounted"
	for ((i = 0; i < 120; i++)); do [ -z "$why" ] || break; room_for "$1" && break; sleep 5; done # others' hosts may go
	room_for "$1" || why="${why:-fs.inotify.max_user_instances leaves no room for $1 more hosts ($(($1 * 7 + 2)))}"
	[ -n "$why" ] || return 0
	skip "systemd hosts" "$why"
	finish
	exit
}
