#!/usr/bin/env bash
# disk_faults.sh [FAULT...]
#   Train a small net whose disk fails while it writes snapshots, by each way of writing, and check that the run ends
#   with an error of one line, that all snapshots before are whole, and that a run goes on from the newest one.
#   FAULT: full (a tmpfs), quota (of ext4), readonly (ext4 that has given up), eio (a device that became smaller); default: all.
#   Needs root and scaffe on PATH. A fault that this machine can't emulate is named and left out.
. "$(dirname "$0")/common.sh"
set -eu
for fault in "$@"; do [[ $fault =~ ^(full|quota|readonly|eio)$ ]] || usage; done
[ "$(id -u)" = 0 ] || fail "mounts need root"
[ $# -gt 0 ] || set -- full quota readonly eio
jobs=$(dirname "$(dirname "$(readlink -f "$0")")")
folder=$(mktemp -d)
disk=$folder/disk
trap 'clear_disk; rm -rf "$folder"' EXIT

clear_disk() { umount "$disk" 2>/dev/null || umount -l "$disk" 2>/dev/null || true; }

ext4() { # ext4 OPTIONS...: mount a file as a disk of 64 MB
  rm -f "$folder/image"
  truncate -s 64M "$folder/image"
  mkfs.ext4 -q -O ^has_journal,sparse_super2 -E num_backup_sb=0 "$@" "$folder/image" && mount -o loop,nosuid "$folder/image" "$disk"
}

quota() { # quota KIB: limit what this user may write
  python3 - "$(findmnt -no SOURCE "$disk")" "$1" <<'PYTHON'
import ctypes, os, struct, sys
libc, limits = ctypes.CDLL(None, use_errno=True), struct.pack("8QI", int(sys.argv[2]), *7 * [0], 1)
Q_SETQUOTA, USRQUOTA = 0x800008, 0
sys.exit(bool(libc.quotactl(Q_SETQUOTA << 8 | USRQUOTA, sys.argv[1].encode(), os.getuid(), limits)))
PYTHON
}

prepare() { # prepare FAULT: mount a disk that will fail
  case $1 in
    full) mount -t tmpfs -o size=4m none "$disk" ;;
    quota) ext4 -O quota -E quotatype=usrquota && quota 4096 ;;
    readonly) ext4 ;;
    eio) ext4 && truncate -s 16M "$folder/image" && losetup -c "$(findmnt -no SOURCE "$disk")" ;; # errors behind its end
  esac 2>/dev/null
}

strike() { # strike FAULT: make the disk fail, if it does not of itself; once there are snapshots
  [ "$1" = readonly ] || return 0
  until [ -e "$disk/snap_iter_40.solverstate" ] || ! kill -0 "$job" 2>/dev/null; do sleep 0.02; done
  mount -o remount,abort "$disk" # what ext4 does after an error; remount,ro refuses while files are open
}

mend() { # mend: give back a disk with the files that the failed one holds
  mkdir "$folder/saved"
  cp -p "$disk"/snap_iter_* "$folder/saved" || fail "the disk's files can't be read"
  clear_disk
  mv "$folder"/saved/* "$disk"
  rmdir "$folder/saved"
}

bounded() { setpriv --bounding-set=-sys_resource --inh-caps=-sys_resource "$@"; } # root is subject to quotas, too

solver() { # solver ITERATIONS
  cat >"$folder/solver.prototxt" <<SOLVER
net: "net.prototxt" base_lr: 0.01 momentum: 0.9 lr_policy: "fixed" max_iter: $1 snapshot: 20 random_seed: 1
snapshot_prefix: "$disk/snap" solver_mode: CPU
SOLVER
}

cell() { # cell FAULT NAME COMMAND...
  local fault=$1 name=$2 newest tried code=0
  shift 2
  mkdir -p "$disk"
  prepare "$fault" || { echo "left out  $fault: this machine can't"; clear_disk; return; }
  solver 100000
  bounded "$@" --snapshot auto >"$folder/log" 2>&1 &
  job=$!
  strike "$fault"
  wait "$job" || code=$?
  newest=$(find "$disk" -name 'snap_iter_*.solverstate' | sed 's/.*iter_\([0-9]*\).*/\1/' | sort -n | tail -1)
  tried=$(grep -ao 'Snapshotting to .*iter_[0-9]*' "$folder/log" | sed 's/.*_//' | tail -1)
  [ "$code" = 2 ] && [ "$(grep -ac '^scaffe: ' "$folder/log")" = 1 ] || bad "exit status $code"
  [ "$newest" = $((tried - 20)) ] || bad "snapshot $tried failed, and $newest is the newest"
  mend
  solver $((newest + 20))
  "$@" --snapshot auto >"$folder/again" 2>&1 || bad "can't go on: $(tail -1 "$folder/again")"
  grep -q "Restored iteration $newest from" "$folder/again" || bad "did not go on at $newest"
  grep -q "Passing over .*iter_\($((newest - 20))\|$newest\)\." "$folder/again" && bad "snapshot lost"
  echo "ok        $fault, $name: snapshots to $newest are whole; $(grep -a '^scaffe: ' "$folder/log")"
  rm -rf "$disk"
}

bad() {
  tr -d '\0' <"$folder/log" | tail -5 >&2
  fail "$fault, $name: $*"
}

cat >"$folder/net.prototxt" <<'NET'
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 8 dim: 400 } shape { dim: 8 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 200 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
cd "$folder"
for fault in "$@"; do
  train=(scaffe train --solver solver.prototxt)
  cell "$fault" waiting "${train[@]}" --no-snapshot-async
  cell "$fault" async "${train[@]}"
  if mpirun --version 2>&1 | grep -q "Open MPI"; then
    cell "$fault" shrink "$jobs/mpirun.sh" --ft -n 2 "${train[@]}" --on-rank-loss shrink
  fi
done
