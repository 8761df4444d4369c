#!/usr/bin/env bash
# Runs what .github/workflows/ci.yml runs, line by line, in a fresh tree of one of Debian's suites that has nothing installed:
# the step that fetches the sources is a clone of this repository. DIR has the log of each line.
# usage: DIR=build/workflow-test tests/system/workflow.sh SUITE [FIRST-WORDS-OF-A-NAME...]     (root)
# With words, only the steps whose names begin so, and those that prepare for them, up to the checkout.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/packages_tree.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
case $DIR in /*) ;; *) DIR=$PWD/$DIR ;; esac
SUITE=$1
shift
tree_make "$SUITE"
TREE=$TREES/$SUITE-workflow
gone() { rm -rf --one-file-system "$TREE" "$DIR/tenure"; }
gone
trap 'gone; cleanup' EXIT
cp -a "$TREES/$SUITE" "$TREE"
# A runner's image knows the same mirror as this machine, and nothing of the backports.
rm -f "$TREE"/etc/apt/sources.list.d/tenure-* "$TREE"/etc/apt/preferences.d/tenure-*

# As in a privileged container: what the kernel shows, terminals and shared memory of its own, no device of this machine's.
# Its mounts and processes end with the command.
in_container() {
	unshare --mount --pid --fork --propagation private sh -ec 'tree=$1 dir=$2; shift 2
		mkdir -p "$tree$dir" "$tree/dev/pts" "$tree/dev/shm"
		mount -t proc proc "$tree/proc"
		mount -t sysfs sysfs "$tree/sys" && mount -t cgroup2 cgroup2 "$tree/sys/fs/cgroup"
		mount -t devpts -o newinstance,ptmxmode=0666,mode=0620 devpts "$tree/dev/pts" && ln -sf pts/ptmx "$tree/dev/ptmx"
		mount -t tmpfs -o size=6g tmpfs "$tree/dev/shm"
		mount --bind "$dir" "$tree$dir"
		exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root CI=true chroot "$tree" "$@"' sh "$TREE" "$DIR" "$@"
}

# Each step: its name, a tab, and its script in base64; "checkout" is the one that fetches the sources.
steps() {
	/usr/bin/python3 - "$ROOT/.github/workflows/ci.yml" <<'EOF'
import base64, sys, yaml
workflow = yaml.safe_load(open(sys.argv[1]))
for job in workflow["jobs"].values():
    for step in job["steps"]:
        name, script = step.get("name", step.get("run")), step.get("run")
        if str(step.get("uses", "")).startswith("actions/checkout@"):
            name, script = "checkout", ""
        if script is not None and "if" not in step:
            print(name, base64.b64encode(script.encode()).decode(), sep="\t")
EOF
}
wanted() { # NAME WORDS...
	local name=$1 word
	shift
	[ $# -gt 0 ] || return 0
	for word; do [[ $name == "$word"* ]] && return 0; done
	return 1
}
prepares=1 n=0
while IFS=$'\t' read -r name script <&3; do
	if [ "$name" = checkout ]; then
		git clone -q "$ROOT" "$DIR/tenure" && prepares=
		is "the sources are fetched" "$?" 0
		continue
	fi
	[ -n "$prepares" ] || wanted "$name" "$@" || [[ $name == Let* ]] || continue
	n=$((n + 1)) began=$SECONDS where=/
	[ -z "$prepares" ] && where=$DIR/tenure
	in_container sh -ec "cd '$where'; $(base64 -d <<<"$script")" >"$DIR/$n.log" 2>&1 </dev/null
	is "Debian $SUITE: $name ($((SECONDS - began)) s, $(grep -E '^[0-9]+ passed' "$DIR/$n.log" | tail -n 1))" "$?" 0
	[ "$FAILED" -eq 0 ] || { grep -A2 -E '^failed:|not ok' "$DIR/$n.log" | head -n 30; tail -n 15 "$DIR/$n.log"; break; }
done 3< <(steps)
[ $n -ge 3 ] || not_ok "the workflow has steps" "$n were found"
finish
