#!/usr/bin/env bash
# numa-vm.sh [2|4 [PYTEST ARGUMENTS]]        numa-vm.sh        numa-vm.sh 4 -k first_touch
#
# Run the placement tests in a virtual machine with 2 and in one with 4 NUMA domains, or in one of them.
# Exits with the status of the tests. The kernel is Debian's; it is downloaded and unpacked, not installed. The machine
# reads this machine's files, by 9p, and can't change them. Processors are emulated: placement is real, speed is not.
# SCAFFE_VENV: the environment with scaffe and pytest (default: .venv beside the README). NUMA_VM_SECONDS: the time
# limit for each machine (default: 1200).
. "$(dirname "$0")/common.sh"
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
python=${SCAFFE_VENV:-$root/.venv}/bin/python
case $python in /*) ;; *) python=$PWD/$python ;; esac
seconds=${NUMA_VM_SECONDS:-1200}
instances=tests/scaffe_tests/parallel/instances

# The cores of each domain: in the larger machine domains differ in size.
layout() {
  case $1 in
    2) cores=(0-1 2-3) distances=("10 21" "21 10") ;;
    4) cores=(0 1-2 3-4 5-7) distances=("10 21 31 21" "21 10 21 31" "31 21 10 21" "21 31 21 10") ;;
    *) usage ;;
  esac
}

# unpack: download Debian's kernel and a static busybox, and take from them what the machine needs.
unpack() {
  local kernel
  kernel=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" { print $2; exit }')
  [ -n "$kernel" ] || fail "apt-get knows no linux-image-amd64; on Debian: apt-get update"
  (cd "$vm" && apt-get -qq -o APT::Sandbox::User=root download "$kernel" busybox-static) ||
    fail "cannot download $kernel and busybox-static; apt-get's message is above"
  mkdir "$vm/kernel" "$vm/busybox"
  dpkg-deb --fsys-tarfile "$vm"/linux-image-*.deb | tar -C "$vm/kernel" -x --wildcards './boot/vmlinuz-*' \
    './lib/modules/*/modules.*' './lib/modules/*/'{drivers/virtio,net/9p,fs/9p,fs/netfs,fs/fscache}'/*'
  dpkg-deb --fsys-tarfile "$vm"/busybox-static_*.deb | tar -C "$vm/busybox" -x --wildcards '*bin/busybox'
  find "$vm/kernel/lib" -name '*.ko.xz' -exec xz -d {} +
}

# pack: make the file system that the kernel starts from.
pack() {
  local ram=$vm/ram busybox
  busybox=$(find "$vm/busybox" -type f -name busybox)
  rm -rf "$ram"
  mkdir -p "$ram"/{bin,host,proc}
  cp "$busybox" "$ram/bin"
  cp -r "$vm/kernel/lib" "$ram"
  "$busybox" depmod -b "$ram" "$(basename "$ram"/lib/modules/*)"
  init >"$ram/init"
  chmod +x "$ram/init"
  {
    echo "cd $(printf %q "$root")"
    echo "exec $(printf '%q ' "$python" -m pytest -p no:cacheprovider -v -rsP "$@")"
  } >"$ram/tests.sh"
  (cd "$ram" && find . | "$busybox" cpio -o -H newc 2>/dev/null) >"$vm/initramfs"
}

# What the machine runs: the tests, in this machine's files, with folders of its own for what they write.
init() {
  cat <<'INIT'
#!/bin/busybox sh
/bin/busybox --install -s /bin
mount -t proc none /proc
modprobe -a virtio_pci 9pnet_virtio 9p
mount -t 9p -o ro,trans=virtio,version=9p2000.L,cache=loose,msize=1048576 host /host
mount -t devtmpfs none /host/dev
mkdir -p /host/dev/shm
mount -t tmpfs none /host/dev/shm
mount -t proc none /host/proc
mount -t sysfs none /host/sys
ifconfig lo 127.0.0.1 up
hostname numa-vm
cp /tests.sh /host/dev/shm
for domain in /host/sys/devices/system/node/node*; do
  echo "${domain##*/}: cores $(cat $domain/cpulist), distances $(cat $domain/distance)"
done
echo "booted in $(cut -d ' ' -f 1 /proc/uptime) s"
chroot /host /usr/bin/env -i PATH="$PATH:/usr/bin:/usr/sbin" HOME=/dev/shm TMPDIR=/dev/shm LANG=C.UTF-8 \
  PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1 \
  HYPOTHESIS_STORAGE_DIRECTORY=/dev/shm/hypothesis /bin/bash /dev/shm/tests.sh
echo $? >/host/dev/ttyS1
echo "ended after $(cut -d ' ' -f 1 /proc/uptime) s"
poweroff -f
INIT
}

# boot DOMAINS [PYTEST ARGUMENTS]: run the tests in a machine with so many domains, and take their status.
boot() {
  local domains=$1 i j row options=() cores distances ended=0
  shift
  layout "$domains"
  for ((i = 0; i < domains; i++)); do
    options+=(-object "memory-backend-ram,id=m$i,size=1G" -numa "node,nodeid=$i,cpus=${cores[i]},memdev=m$i")
  done
  for ((i = 0; i < domains; i++)); do
    read -ra row <<<"${distances[i]}"
    for ((j = 0; j < domains; j++)); do options+=(-numa "dist,src=$i,dst=$j,val=${row[j]}"); done
  done
  options+=(-m "${domains}G" -smp "$((${cores[-1]#*-} + 1))")
  pack $instances/test_{placement,training}_on_domains.py "$@"
  rm -f "$vm/status"
  # The second serial line is for the status. Automatic balancing is off: it would move misplaced pages.
  timeout --foreground "$seconds" qemu-system-x86_64 -accel tcg,thread=multi -cpu max "${options[@]}" \
    -kernel "$vm"/kernel/boot/vmlinuz-* -initrd "$vm/initramfs" \
    -append "console=ttyS0 quiet panic=-1 numa_balancing=disable" -no-reboot \
    -virtfs "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap" \
    -display none -monitor none -nic none -serial stdio -serial "file:$vm/status" </dev/null || ended=$?
  [ "$ended" != 124 ] || fail "the tests on $domains domains ran longer than $seconds s; NUMA_VM_SECONDS sets another limit"
  [ -s "$vm/status" ] || fail "the machine with $domains domains ended before its tests; its messages are above"
  [ "$(tr -dc 0-9 <"$vm/status")" = 0 ] || status=$(tr -dc 0-9 <"$vm/status")
}

for tool in qemu-system-x86_64:qemu-system-x86 apt-get:apt dpkg-deb:dpkg xz:xz-utils; do need "${tool%:*}" "${tool#*:}"; done
[ $# = 0 ] || layout "$1"
"$python" -c 'import pytest, scaffe' 2>/dev/null ||
  fail "no scaffe and pytest in $python; run jobs/test.sh, which installs them, or set SCAFFE_VENV"
own_lab
vm=$(mktemp -d "$lab/numa-vm.XXXX")
trap 'rm -rf "$vm"; rmdir "$lab" 2>/dev/null || true' EXIT
unpack
status=0
if [ $# -gt 0 ]; then boot "$@"; else for domains in 2 4; do boot "$domains"; done; fi
exit "$status"
