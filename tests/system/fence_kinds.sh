# What fence.sh binds to tenure-held.target on h4: a unit of each kind that is hard to stop, each with somebody in it who writes
# down that he runs (says.c). Sourced after hosts_lib.sh.
# shellcheck shell=bash disable=SC2034
KINDS=(only-one slow stubborn leftover always outside each-a each-b mounted a-user container)
SAYS=$(dirname "$BIN")/tests/system/says
says_dir() { echo "/proc/$(rig_init h4)/root/run/says"; }

# put FILE: below /etc/systemd/system of h4, from standard input
put() { on h4 sh -c "mkdir -p \"\$(dirname '/etc/systemd/system/$1')\"; cat >'/etc/systemd/system/$1'"; }
BOUND=$'[Unit]\nBindsTo=tenure-held.target\nAfter=tenure-held.target\nStartLimitIntervalSec=0'
# hard NAME SERVICE-LINES [UNIT-LINES]
hard() {
	printf '%s\n%s\n[Service]\n%s\n[Install]\nWantedBy=tenure-held.target\n' "$BOUND" "${3-}" "$2" | put "$1"
	ENABLE+=("${1/@./@a.}")
}
# Starts what is bound by itself, and so is not in a unit of its own; not bound: a start while the place is not held is refused.
# A scope whose start was refused since the target is stopping systemd 252 keeps for good, and takes the next one of that name for
# there already: hence the wait, and another name each time ($$).
starter() {
	printf '[Unit]\nAfter=tenure-held.target\nStartLimitIntervalSec=0\n[Service]\nRestart=always\nRestartSec=200ms\nExecStart=/bin/sh -c "until systemctl is-active --quiet tenure-held.target; do sleep 0.1; done; exec %s"\n%s\n[Install]\nWantedBy=tenure-held.target\n' "${2//\$/\$\$}" "${3-}" | put "$1"
	ENABLE+=("$1")
}

kinds_up() { # all that is missing is named on standard output
	"$SAYS" --up "$(says_dir)" "${KINDS[@]}"
}

ENABLE=()
kinds_install() {
	on h4 sh -c 'cat >/usr/bin/says; chmod 755 /usr/bin/says' <"$SAYS"
	printf '[Service]\nExecStart=\nExecStart=/usr/bin/says /run/says/only-one\n' | put only-one.service.d/says.conf
	# Takes 1.5 s to stop, more than there is at any TTL here; what leaves in peace gives it the time.
	hard slow.service $'ExecStart=/usr/bin/says /run/says/slow stop 1500\nTimeoutStopSec=3s'
	hard stubborn.service $'ExecStart=/usr/bin/says /run/says/stubborn ignore\nTimeoutStopSec=2s'
	hard leftover.service $'Slice=tenure-held.slice\nKillMode=process\nExecStart=/bin/sh -c "setsid /usr/bin/says /run/says/leftover ignore & exec sleep infinity"'
	hard always.service $'Slice=tenure-held.slice\nExecStart=/usr/bin/says /run/says/always\nRestart=always\nRestartSec=10ms'
	# Not in the slice: a control group that is new is not frozen with it.
	hard outside.service $'ExecStart=/usr/bin/says /run/says/outside\nRestart=always\nRestartSec=10ms'
	hard each@.service $'Slice=tenure-held.slice\nExecStart=/usr/bin/says /run/says/each-%i'
	ENABLE+=(each@b.service)
	printf '%s\n[Mount]\nWhat=tmpfs\nWhere=/srv/held\nType=tmpfs\n[Install]\nWantedBy=tenure-held.target\n' "$BOUND" | put srv-held.mount
	on h4 sh -c 'mkdir -p /srv/held'; ENABLE+=(srv-held.mount)
	hard mounted.service $'WorkingDirectory=/srv/held\nExecStart=/usr/bin/says /run/says/mounted' RequiresMountsFor=/srv/held
	# A scope of a user's, which is where a program that he started runs.
	# shellcheck disable=SC2016
	starter a-user-starts.service 'systemd-run --quiet --scope --unit=a-user-$$ --uid=nobody --slice=user-65534.slice -p BindsTo=tenure-held.target -p After=tenure-held.target -p TimeoutStopSec=2s /usr/bin/says /run/says/a-user'
	# A container, whose scope is systemd-machined's.
	on h4 sh -c 'cd /var/lib && mkdir -p ct/usr ct/etc ct/run ct/tmp ct/proc ct/sys ct/dev ct/root && cd ct && ln -s usr/bin usr/sbin usr/lib usr/lib64 . && echo ID=test >etc/os-release'
	# shellcheck disable=SC2016
	starter container-starts.service 'systemd-nspawn --quiet -M container-$$ -D /var/lib/ct --bind-ro=/usr --bind=/run/says --private-network --as-pid2 --resolv-conf=off --timezone=off --link-journal=no --console=passive --property=BindsTo=tenure-held.target --property=After=tenure-held.target --property=TimeoutStopSec=2s /usr/bin/says /run/says/container ignore' $'KillMode=mixed\nTimeoutStopSec=2s'
	on h4 systemctl enable --quiet "${ENABLE[@]}"
	on h4 sh -c 'systemctl restart only-one; systemctl start --no-block slow stubborn leftover always outside each@a each@b mounted a-user-starts container-starts'
	until_ok 20 kinds_up || { not_ok "what is bound runs" "not $(kinds_up)"; return 1; }
	has "the container is systemd-machined's" "$(on h4 machinectl list --no-legend)" "^container-[0-9]+ "
}
