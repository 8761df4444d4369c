# Trees of Debian's suites for packages.sh, made once and kept in TREES: one that is a host's, one that has what a build needs.
# Source it, after lib.sh.
# shellcheck shell=bash
TREES=${TREES:-$PWD/build/trees}
case $TREES in /*) ;; *) TREES=$PWD/$TREES ;; esac

# What is run where packages are built: here, or in the suite's tree, with DIR where it is here.
within() {
	if [ -z "$SUITE" ]; then "$@"; else in_tree "$SUITE-build" "$@"; fi
}

# in_tree TREE COMMAND...: no more of this machine than DIR and the network.
in_tree() {
	local tree=$TREES/$1
	shift
	mkdir -p "$tree$DIR"
	unshare --mount --pid --fork --propagation private sh -c 'tree=$1 dir=$2; shift 2
		mount -t proc proc "$tree/proc" && mount --bind "$dir" "$tree$dir" && cd "$tree" && exec chroot "$tree" "$@"' sh "$tree" "$DIR" "$@"
}

tree_fails() { skip "Debian $SUITE" "$1"; finish; exit; }

tree_make() { # SUITE
	local line uri raw=$TREES/.$1.new
	command -v debootstrap >/dev/null || tree_fails "debootstrap is not installed"
	[ "$(id -u)" = 0 ] || tree_fails "needs root"
	line=$(apt-get indextargets --format '$(CODENAME)|$(COMPONENT)|$(REPO_URI)' 'Created-By: Packages' | grep "^$(. /etc/os-release && echo "$VERSION_CODENAME")|main|" | head -n 1)
	uri=${line##*|}
	if [ ! -d "$TREES/$1" ]; then
		rm -rf "$raw" && mkdir -p "$raw"
		debootstrap --variant=minbase --keyring=/usr/share/keyrings/debian-archive-keyring.gpg --include=systemd-sysv,dbus,procps,etcd-client "$1" "$raw" "$uri" >"$DIR/tree.log" 2>&1 ||
			tree_fails "debootstrap makes no tree of it: $(tail -n 1 "$DIR/tree.log")"
		mv "$raw" "$TREES/$1"
	fi
	if [ ! -d "$TREES/$1-build" ]; then
		rm -rf "$raw" && cp -a "$TREES/$1" "$raw"
		mkdir -p "$DIR/deps/.ci" && cp "$ROOT/.ci/deps" "$DIR/deps/.ci/"
		mv "$raw" "$TREES/.$1-build"
		in_tree ".$1-build" sh -c "apt-get -q update && '$DIR/deps/.ci/deps' deb && apt-get -q -y --no-install-recommends install lintian" >"$DIR/tree.log" 2>&1 ||
			{ rm -rf "$TREES/.$1-build"; not_ok "Debian $1: .ci/deps deb installs what the build needs" "$(tail -n 3 "$DIR/tree.log")"; finish; exit 1; }
		mv "$TREES/.$1-build" "$TREES/$1-build"
		cp -a "$TREES/$1-build/etc/apt/." "$TREES/$1/etc/apt/" # on Debian 12 libraft is in the backports
	fi
	ok "a tree of Debian $1"
}

# tree_fetch DIRECTORY: what the packages in it depend on, into the hosts' tree, so that hosts without a network install them.
tree_fetch() {
	in_tree "$SUITE" sh -c "apt-get -q update && apt-get -q -y --no-install-recommends --download-only install '$1'/*.deb" >"$DIR/fetch.log" 2>&1 ||
		{ not_ok "Debian $SUITE has what the packages depend on" "$(tail -n 3 "$DIR/fetch.log")"; finish; exit 1; }
	ok "Debian $SUITE has what the packages depend on"
}

# tree_tooz CORE: the own tests of OpenStack's tooz, over the HTTP gateway of a core that was built there. Debian 12's tooz passes
# an argument that Debian 12's python3-etcd3gw does not have.
tree_tooz() {
	local log=$DIR/tooz.log
	[ "$SUITE" != bookworm ] || { skip "tooz's own tests" "Debian 12's tooz does not run with Debian 12's python3-etcd3gw"; return; }
	in_tree "$SUITE-build" apt-get -q -y --no-install-recommends install iproute2 python3-tooz python3-testtools python3-testscenarios python3-fixtures python3-ddt >"$DIR/tooz-install.log" 2>&1 ||
		{ not_ok "Debian $SUITE has tooz" "$(tail -n 3 "$DIR/tooz-install.log")"; return; }
	# The mount and pid namespaces of in_tree end with the command, and the core with them.
	# shellcheck disable=SC2016 # the inner shell expands it
	in_tree "$SUITE-build" unshare --net sh -c 'ip link set lo up
		"$1" --data-dir "$(mktemp -d)" &
		tries=0
		until python3 -c "import socket; socket.create_connection((\"127.0.0.1\", 2379))"; do
			tries=$((tries + 1)); [ $tries -lt 100 ] || exit; sleep 0.1
		done 2>/dev/null
		TOOZ_TEST_URL="etcd3+http://127.0.0.1:2379?api_version=v3" timeout 180 python3 -m testtools.run tooz.tests.test_coordination' sh "$1" >"$log" 2>&1
	has "tooz's own tests run" "$(cat "$log")" '^Ran [5-9][0-9] tests'
	# This one calls a property of tooz's own as a function, and fails on an etcd, too.
	is "tooz's own tests pass" "$(grep -E '^(ERROR|FAIL): ' "$log" | grep -v 'TestAPI.test_lock_context_manager_acquire_argument$')" ""
}
