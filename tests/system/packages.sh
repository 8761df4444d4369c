#!/usr/bin/env bash
# The Debian packages as who installs them sees them: built twice, looked at by lintian, and, on real systemd hosts, installed,
# upgraded while another host listens, disabled, removed, purged.
# usage: DIR=build/packages-test tests/system/packages.sh [SUITE]     (root)
# With a SUITE of Debian's, such as trixie, all of that in a tree of it, which is made by debootstrap, from the mirror that this
# machine's apt sources name, in TREES (build/trees); without one, in what this machine runs.
. "$(dirname "$0")/lib.sh"
. "$(dirname "$0")/packages_tree.sh"
ROOT=$(cd "$(dirname "$0")/../.." && pwd)
case $DIR in /*) ;; *) DIR=$PWD/$DIR ;; esac
SUITE=${1:-}
[ "$(id -u)" = 0 ] || { skip "packages" "needs root"; finish; exit; }
[ -z "$SUITE" ] || tree_make "$SUITE"
for tool in dpkg-buildpackage dh lintian; do
	within sh -c "command -v $tool" >/dev/null || { skip "packages" "no $tool here"; finish; exit; }
done

# ---- built twice, in two places, by people who differ in what they may differ in
source_to() { # DIRECTORY
	mkdir -p "$1" && tar -C "$ROOT" --exclude=./build --exclude=./.git --exclude=__pycache__ -c . | tar -C "$1" -x
}
built() { # DIRECTORY WHAT UMASK ENVIRONMENT...
	local dir=$1 what=$2 mask=$3
	shift 3
	within "${AS[@]}" sh -c 'umask $1; shift; exec env "$@"' sh "$mask" "$@" make -C "$dir" deb >"$dir.log" 2>&1 && return
	not_ok "$what: make deb" "$(tail -n 5 "$dir.log")"; finish; exit 1
}
A=$DIR/a B=$DIR/b/elsewhere AS=()
source_to "$A"; source_to "$B"
# The unit tests run elsewhere, and in a suite's tree here.
CHECK=; [ -n "$SUITE" ] || CHECK=nocheck
built "$A" "the packages are built" 022 TZ=UTC LC_ALL=C.UTF-8 "DEB_BUILD_OPTIONS=$CHECK" KEEP=1
chown -R 65534:65534 "$DIR/b"; AS=(setpriv --reuid=65534 --regid=65534 --clear-groups)
within "${AS[@]}" test -w "$B" || { AS=(); skip "built by who is not root" "nobody(65534) cannot reach $B"; }
built "$B" "and elsewhere" 077 TZ=Asia/Kathmandu LC_ALL=C HOME=/nonexistent USER=nobody DEB_BUILD_OPTIONS=nocheck
packages() { (cd "$1/build/deb" && ls -- *.deb); }
is "make deb builds all packages" "$(packages "$A" | grep -v -e -dbgsym_ | sed 's/_.*//' | tr '\n' ' ')" "libtenure-dev libtenure0 python3-tenure tenure-core tenurectl tenured "
is "packages built by two users, in two directories, time zones, languages and umasks are identical" "$(packages "$B")" "$(packages "$A")"
for p in $(packages "$A"); do
	cmp "$A/build/deb/$p" "$B/build/deb/$p" >"$DIR/cmp.log" 2>&1 && ok "$p: equal to the byte" || not_ok "$p: equal to the byte" "$(cat "$DIR/cmp.log")"
done
is "the tree stays as it is" "$(cd "$A" && find . -path ./build -prune -o ! -type d -print | sort)" "$(cd "$ROOT" && find . \( -path ./build -o -name .git -o -name __pycache__ \) -prune -o ! -type d -print | sort)"
within lintian --allow-root --fail-on error,warning "$A"/build/deb/*.changes >"$DIR/lintian.log" 2>&1
is "lintian has nothing to say" "$? $(cat "$DIR/lintian.log")" "0 "

# ---- the next version
V1=$(dpkg-parsechangelog -l "$ROOT/conf/debian/changelog" -S Version) V2=${V1%-*}-$((${V1##*-} + 1))
mkdir -p "$DIR/debs/1" "$DIR/debs/2" && cp "$A"/build/deb/*.deb "$DIR/debs/1"
TREE=$A/build/deb/tenure-${V1%-*}
{ printf 'tenure (%s) unstable; urgency=medium\n\n  * An upgrade.\n\n -- Nobody <nobody@tenure.example>  %s\n\n' "$V2" "$(date -R)"; cat "$ROOT/conf/debian/changelog"; } >"$TREE/debian/changelog"
# What was compiled is there.
within sh -c 'cd "$1" && DEB_BUILD_OPTIONS=nocheck dpkg-buildpackage --build=binary --no-sign --no-pre-clean' sh "$TREE" >"$DIR/next.log" 2>&1 || { not_ok "the next version" "$(tail -n 5 "$DIR/next.log")"; finish; exit 1; }
cp "$A/build/deb/"*"_${V2}_"*.deb "$DIR/debs/2" && rm "$DIR"/debs/*/*-dbgsym_*
[ -z "$SUITE" ] || { tree_fetch "$DIR/debs/1"; tree_tooz "$(echo "$TREE"/build/*/bin/tenure-core)"; }

# ---- hosts: h1 with the core, who listens; h2, to which things happen
# A host needs seven inotify instances, all of root's; one that gets none does not boot, without an error.
room() { [ $(($(cat /proc/sys/fs/inotify/max_user_instances) - $(find /proc/[0-9]*/fd -lname anon_inode:inotify 2>/dev/null | wc -l))) -ge 16 ]; }
no_hosts() { skip "systemd hosts" "$1"; finish; exit; }
command -v systemd-nspawn >/dev/null || no_hosts "no systemd-container here"
findmnt -rn -t cgroup2 >/dev/null || no_hosts "no cgroup2 is mounted"
until_ok 600 room || no_hosts "fs.inotify.max_user_instances leaves no room for 2 more hosts (16)" # others' hosts may go
export STATE=$DIR/rig NAME=tenure-packages-$$ RIG=$ROOT/tests/hosts/rig.sh TREE=${SUITE:+$TREES/$SUITE}
export TREE=${TREE:-/} PREP=$ROOT/tests/system/packages_prep.sh BUILD=$DIR/debs
rig() { env RIG="$NAME" "$RIG" "$@"; }
on() { rig exec "$@"; }
down() { rig down >/dev/null 2>&1; cleanup; }
trap down EXIT
rig up 2 >"$DIR/up.log" 2>&1 || no_hosts "they do not boot here: $(tail -n 1 "$DIR/up.log")"
has "the hosts run ${SUITE:-what this machine runs}" "$(on h2 sh -c '. /etc/os-release; echo "$VERSION_ID $VERSION_CODENAME"')" "${SUITE:-.}"

# Its output is in said.log.
packs() { # HOST COMMAND...
	on "$1" env DEBIAN_FRONTEND=noninteractive "${@:2}" >"$DIR/said.log" 2>&1 </dev/null && return
	not_ok "$1: ${*:2}" "$(tail -n 5 "$DIR/said.log")"
	return 1
}
debs() { (cd "$DIR/debs" && printf '/build/%s\n' "$1"/*.deb); }
# shellcheck disable=SC2046 # lists of packages
install() { packs "$1" dpkg --install $(debs "$2"); }
# shellcheck disable=SC2046
install_first() { if [ -n "$SUITE" ]; then packs "$1" apt-get -q -y --no-install-recommends install $(debs 1); else install "$1" 1; fi; }
OURS="tenured tenure-core tenurectl libtenure-dev python3-tenure libtenure0"
prop() { on "$1" systemctl show -P "$3" "$2"; }
held() { on "$1" tenurectl status >/dev/null 2>&1; }
lease() { on "$1" busctl get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager LeaseId; }
program() { on "$1" readlink "/proc/$(prop "$1" "$2" MainPID)/exe"; }
# All that is there, but what any installation, systemd and a profiler (perf keeps the programs it saw in ~/.debug) leave; of
# settings and users also what is in them. Below /usr only what the packages may have put there.
left_behind() { # HOST
	on "$1" sh -c 'find /etc /opt /srv /root /home /var /run -xdev \( -path /var/cache -o -path /var/log -o -path /var/tmp -o -path /var/lib/apt -o -path /var/lib/dpkg \
		-o -path /run/systemd -o -path /run/log -o -path /run/udev -o -path /run/user -o -path /root/.debug \) -prune -o -printf "%p %y %m %U:%G\n"
		find /usr -name "*tenure*" -printf "%p %y %m %U:%G\n"
		find /etc -type f ! -name "*-" ! -name ld.so.cache -exec sha256sum {} +
		find /var/lib/dpkg/info -name "*tenure*"; dpkg-query -W -f "\${Package} \${Status}\n" "*tenure*" 2>/dev/null
		find /run/systemd -name "*tenure*"; find /tmp /var/tmp -name "systemd-private-*tenure*"
		systemctl list-units --all --no-legend --plain "*tenure*"; systemctl list-unit-files --no-legend "*tenure*"
		busctl list --acquired --activatable --no-legend | grep tenure; journalctl --list-catalog 2>/dev/null | grep -i tenure
		ps -eo args | grep "[/]tenure[a-z-]*"; getent passwd | grep tenure; getent group | grep tenure' | sort
}
nothing_left() { # WHAT HOST
	left_behind "$2" >"$DIR/after.$2"
	is "$1: nothing is left" "$(diff "$DIR/before.$2" "$DIR/after.$2")" ""
}
# A tree's hosts have nothing of what the packages depend on: that comes first, and stays.
others() { on "$1" apt-get -s --no-install-recommends install $(debs 1) | awk '/^Inst/ { print $2 }' | grep -vxF "$(tr ' ' '\n' <<<"$OURS")"; }
# shellcheck disable=SC2046 # a list of packages
for h in h1 h2; do
	[ -z "$SUITE" ] || packs $h apt-get -q -y --no-install-recommends install $(others $h) || { finish; exit 1; }
	left_behind $h >"$DIR/before.$h"
done
# All files of packages have the name in their path, or this does not look where they are.
is "every file of the packages has the name in its path" "$(for p in "$DIR"/debs/1/*.deb; do dpkg-deb --fsys-tarfile "$p" | tar -t; done | grep -v '/$' | grep -v tenure)" ""
is "before: no trace" "$(grep -cE 'tenured|tenure-core|tenurectl|run/tenure' "$DIR/before.h1" "$DIR/before.h2" | tr '\n' ' ')" "$DIR/before.h1:0 $DIR/before.h2:0 "

# Some fail in a container anyhow.
failed() { on "$1" systemctl --failed --no-legend --plain | grep -vE '^systemd-(ask-password-[a-z]*\.path|modules-load.service)'; }

# ---- fresh: nothing runs before it was told of its cluster, and nothing fails
states() { for u in "${@:2}"; do on "$1" systemctl is-enabled $u; on "$1" systemctl is-active $u; done 2>/dev/null | tr '\n' ' '; }
for h in h1 h2; do install_first $h || { finish; exit 1; }; done
is "installed: nothing is enabled, nothing runs" "$(states h2 tenured tenure-core)" "disabled inactive disabled inactive "
is "no process of the packages runs" "$(on h2 ps -eo args | grep -c '/tenure')" 0
is "no unit has failed after the installation" "$(failed h2)" ""
is "tenurectl without a running agent exits with 1" "$(on h2 tenurectl nodes >/dev/null 2>"$DIR/asked.log"; echo $?)" 1
is "a call on the bus does not start the agent" "$(states h2 tenured)" "disabled inactive "
is "no installed file differs from its package" "$(on h2 dpkg -V $OURS)" ""

# ---- told, enabled, joined
ETCD=http://10.77.0.1:2379
printf '[Core]\nName=h1\n[Clients]\nListenClientURLs=%s\n' $ETCD | on h1 tee /etc/tenure/tenure-core.conf >/dev/null
for h in h1 h2; do printf '[Agent]\nEndpoints=%s\n' $ETCD | on $h tee /etc/tenure/tenured.conf >/dev/null; done
on h1 systemctl enable -q --now tenure-core; on h2 systemctl enable -q --now tenure-core # a core of its own, with the settings it came with
for h in h1 h2; do on $h systemctl enable -q --now tenured; done
both() { [ "$(on "$1" tenurectl nodes --no-legend 2>/dev/null | grep -c '^h[12] ')" = 2 ]; }
until_ok 20 both h1 && until_ok 20 both h2 && ok "enabled: both know each other" || not_ok "enabled: both know each other" "$(on h2 journalctl -u tenured -o cat --no-pager | tail -n 3)"
bound() { on h2 systemctl is-active -q bound; }
until_ok 10 bound && ok "what is bound to the place runs" || not_ok "what is bound to the place runs"
is "the core that came with no settings serves this host alone" "$(on h2 etcdctl --endpoints http://127.0.0.1:2379 endpoint health 2>&1 | grep -c 'is healthy')" 1
is "tenure-core runs as its own user" "$(on h2 stat -c %U /var/lib/tenure-core)" tenure-core

# ---- what others hear
# In the background within a host, until it is ended.
begin() { start "$2.$1" env RIG="$NAME" "$RIG" exec "$1" sh -c "echo \$\$ >/run/$2.pid; exec $3"; }
end() { on "$1" sh -c "kill \$(cat /run/$2.pid); rm /run/$2.pid"; }
for h in h1 h2; do begin $h watch "tenurectl watch --json=short"; done
N=0
# Everything before this line has been reported once this one is.
told_all() { # HOST
	N=$((N + 1))
	on h1 etcdctl --endpoints $ETCD put "/tenure/default/nodes/probe$N" '{}' >/dev/null
	until_ok 15 grep -q "\"name\":\"probe$N\"" "$DIR/watch.$1.log" || not_ok "$1 still hears"
}
heard() { grep -c "\"name\":\"$2\"" "$DIR/watch.$1.log"; } # HOST OF
renewal() { on "$1" busctl get-property org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager LastRenewalUSec 2>/dev/null | cut -d' ' -f2; }
renewed_after() { local r; r=$(renewal "$1"); [ "${r:-0}" -gt "$2" ]; }
# No host notices what is done to h2, and bound units keep running.
quietly() { # WHAT COMMAND...
	local what=$1 l p n r
	shift
	told_all h1
	l=$(lease h2) p=$(prop h2 bound MainPID) n=$(heard h1 h2) r=$(renewal h2)
	"$@"
	until_ok 20 held h2 && until_ok 20 renewed_after h2 "${r:-0}" || not_ok "$what: it holds its place" "$(on h2 systemctl status tenured | head -n 5)"
	told_all h1
	is "$what: the lease is kept" "$(lease h2)" "$l"
	is "$what: what is bound to it runs on" "$(prop h2 bound MainPID)" "$p"
	is "$what: nobody hears of it" "$(heard h1 h2)" "$n"
}
running() { for u in tenured tenure-guard tenure-reboot tenure-core; do program h2 $u; done | tr '\n' ' '; }
ALL="/usr/bin/tenured /usr/bin/tenured /usr/bin/tenured /usr/bin/tenure-core "

# ---- upgrades
pids() { for u in tenured tenure-guard tenure-reboot tenure-core; do prop h2 $u MainPID; done | tr '\n' ' '; }
was=$(pids)
quietly "an upgrade of the agent" install h2 2
is "the version is the next one" "$(on h2 dpkg-query -W -f '${Version} ' $OURS)" "$(for _ in $OURS; do printf '%s ' "$V2"; done)"
is "agent, guard, helper and core are the new programs" "$(running)" "$ALL"
now=$(pids); same=0; for i in 1 2 3 4; do [ "$(cut -d' ' -f$i <<<"$was")" != "$(cut -d' ' -f$i <<<"$now")" ] || same=$((same + 1)); done
is "each in a new life" "$same" 0
# A restarted agent reports all nodes to its own programs again; so the events are watched on another host.
word() { echo "$(heard h2 h1) $(heard h2 h2) $(grep -c NodeLeft "$DIR"/watch.h1.log) $(lease h1) $(lease h2)"; }
told_all h2; w=$(word)
install h1 2; until_ok 20 held h1; told_all h1; told_all h2
is "an upgrade of the core, its only replica, and of the agent beside it: nobody hears of anything" "$(word)" "$w"
is "the upgraded program runs" "$(program h1 tenure-core)" /usr/bin/tenure-core
quietly "back to the version before" install h2 1

# ---- settings that the new version refuses: the old one goes on, and the installation ends well
on h2 sh -c 'printf "Nonsense=1\n" >>/etc/tenure/tenured.conf'
p=$(prop h2 tenured MainPID)
quietly "an upgrade that refuses the settings" install h2 2
is "the former agent still holds the place" "$(prop h2 tenured MainPID)" "$p"
has "the installation says what is wrong" "$(cat "$DIR/said.log")" "tenured.conf.*Nonsense"
has "the installation names the command that restarts the agent" "$(cat "$DIR/said.log")" "then: systemctl restart tenure-guard tenure-reboot tenured"
on h2 sed -i '/Nonsense/d' /etc/tenure/tenured.conf
quietly "mended, and restarted as it said" on h2 systemctl restart tenure-guard tenure-reboot tenured
is "all are the new programs" "$(running)" "$ALL"

# ---- stopped stays stopped, disabled stays disabled, masked stays masked
on h2 systemctl stop tenured; install h2 1
is "stopped, then another version: it is not started" "$(states h2 tenured)" "enabled inactive "
on h2 systemctl start tenured; until_ok 20 held h2
on h2 systemctl disable -q --now tenured tenure-core; install h2 2
is "disabled stays disabled over an upgrade" "$(states h2 tenured tenure-core)" "disabled inactive disabled inactive "
is "the D-Bus alias stays disabled" "$(on h2 ls /etc/systemd/system | grep -c dbus-org.tenure)" 0
on h2 systemctl mask -q tenured; install h2 1
is "masked stays masked" "$(states h2 tenured)" "masked inactive "
on h2 systemctl unmask -q tenured; on h2 systemctl enable -q --now tenured tenure-core
until_ok 20 held h2 && until_ok 10 bound || not_ok "enabled again" "$(on h2 systemctl status tenured bound | head -n 20)"

# ---- removed: stopped in peace, while somebody goes on asking on the bus; what was set stays
end h2 watch
begin h2 ask "sh -c 'while :; do busctl call org.tenure.Membership1 /org/tenure/Membership1 org.tenure.Membership1.Manager ListNodes >/dev/null 2>&1; done'"
told_all h1; n=$(wc -l <"$DIR/watch.h1.log")
packs h2 dpkg --remove $OURS
last_word() { tail -n "+$((n + 1))" "$DIR/watch.h1.log" | grep '"name":"h2"' | jq -rs 'map("\(.event) \(.reason // "")") | .[-1]'; }
left() { [ "$(last_word)" = "NodeLeft left" ]; }
until_ok 10 left && ok "removed: it gives its place back" || not_ok "removed: it gives its place back" "$(last_word)"
is "after the removal nothing runs, even after a call on the bus" "$(on h2 ps -eo args | grep '[/]usr/bin/tenure')" ""
is "after the removal bound units have stopped" "$(on h2 systemctl is-active bound)" inactive
is "the settings stay" "$(on h2 cat /etc/tenure/tenured.conf | tr '\n' ' ')" "[Agent] Endpoints=$ETCD "
is "the removal keeps the state directories" "$(on h2 ls -d /var/lib/tenured/boots /var/lib/tenure-core 2>&1 | tr '\n' ' ')" "/var/lib/tenure-core /var/lib/tenured/boots "
is "nothing has failed" "$(failed h2)" ""
end h2 ask

# ---- purged: from removed, and from running
packs h2 dpkg --purge $OURS
nothing_left "purged" h2
end h1 watch; packs h1 dpkg --purge $OURS
nothing_left "purged while it ran" h1
install h2 2; on h2 systemctl start tenured; packs h2 dpkg --purge $OURS
nothing_left "installed again, never enabled, started by hand, purged" h2

rm -rf "$DIR"/a "$DIR"/b "$DIR/debs"
finish
