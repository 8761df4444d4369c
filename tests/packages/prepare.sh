#!/usr/bin/env bash
# Makes a host one on which packages are installed by a person. The rig calls it: prepare.sh hI I ROOT.
set -eu
root=$3
# A container's image forbids that an installation starts anything; a host does not.
rm -f "$root/usr/sbin/policy-rc.d"
rm -rf "$root/etc/tenure"
rm -f "$root/var/lib/man-db/auto-update" # which takes longer than all else
# What is bound to the place.
cat >"$root/etc/systemd/system/bound.service" <<'END'
[Unit]
BindsTo=tenure-held.target
After=tenure-held.target
[Service]
Slice=tenure-held.slice
ExecStart=/bin/sleep infinity
END
mkdir -p "$root/etc/systemd/system/tenure-held.target.wants"
ln -sf ../bound.service "$root/etc/systemd/system/tenure-held.target.wants/bound.service"
