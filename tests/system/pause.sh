#!/usr/bin/env bash
# A virtual machine that is paused, whose clocks all stand still meanwhile, and one whose clock is slewed: how long it believes in a
# place that others know to be gone. The processor is emulated, so it runs anywhere; the kernel is Debian's.
# usage: BIN=build/release/bin DIR=build/pause-test GUEST=build/release/tests/system/guest tests/system/pause.sh ROUNDS [SEED]
# KERNEL=vmlinuz MODULES=/lib/modules/VERSION; else Debian's linux-image-cloud is fetched, once, to beside DIR.
ROUNDS=${1:-10} SEED=${2:-$(date +%s)}
. "$(dirname "$0")/lib.sh"
HERE=$(dirname "$0")
give_up() { skip "a machine that is paused" "$1"; finish; exit; }
command -v qemu-system-x86_64 >/dev/null || give_up "no qemu-system-x86_64 here (package qemu-system-x86)"
if [ -z "${KERNEL:-}" ]; then
	FETCHED=$(dirname "$DIR")/pause-kernel
	p=$(apt-cache depends linux-image-cloud-amd64 2>/dev/null | awk '$1 == "Depends:" {print $2; exit}')
	[ -d "$FETCHED" ] || (cd "$DIR" && for n in "$p-unsigned" "$p"; do apt-get download "$n" && dpkg -x ./linux-image*.deb kernel && mv kernel "$FETCHED" && break; done) >"$DIR/fetch.log" 2>&1
	KERNEL=$(echo "$FETCHED"/boot/vmlinuz-*) MODULES=$(echo "$FETCHED"/lib/modules/*)
fi
[ -r "$KERNEL" ] || give_up "no kernel: apt-get download of Debian's linux-image-cloud-amd64 does not work here"

# What the guest runs, what that needs, and the drivers of its network card.
mkdir -p "$DIR/root"/{proc,sys,dev}
cp "$GUEST" "$DIR/root/init"
ldd "$GUEST" | awk '/\// {for (i = 1; i <= NF; i++) if ($i ~ /^\//) print $i}' | while read -r f; do install -D "$f" "$DIR/root/$f"; done
for m in drivers/virtio/virtio_ring drivers/virtio/virtio drivers/virtio/virtio_pci_modern_dev drivers/virtio/virtio_pci_legacy_dev drivers/virtio/virtio_pci \
	net/core/failover drivers/net/net_failover drivers/net/virtio_net; do
	install -D "$MODULES/kernel/$m.ko" "$DIR/root/lib/${m##*/}.ko" && echo "/lib/${m##*/}.ko" >>"$DIR/root/modules"
done
/usr/bin/python3 "$HERE/pause.py" initramfs "$DIR/root" "$DIR/initramfs"

read -r c p < <(free_ports 2)
start_replica core "$c" "$p"
until_ok 10 etcdctl --endpoints "127.0.0.1:$c" endpoint health || { not_ok "the core"; finish; exit 1; }
/usr/bin/python3 "$HERE/pause.py" run "$DIR" "$KERNEL" "$c" "$ROUNDS" "$SEED" >"$DIR/run.log" 2>&1 || echo "not ok pause.py has ended" >>"$DIR/run.log"
while read -r line; do
	case $line in
	"ok "*) ok "${line#ok }" ;;
	"not ok "*) not_ok "${line#not ok }" "$(tail -n 2 "$DIR/run.log" | tr '\n' ' ')" ;;
	*) echo "$line" ;;
	esac
done <"$DIR/run.log"
finish
