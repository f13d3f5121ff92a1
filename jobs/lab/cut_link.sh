#!/usr/bin/env bash
# cut_link.sh shrink|retry [NODE]
#   Cut the link of NODE (0 to 2, default 1) of three emulated nodes that train a small net, one rank each. Check that
#   the ranks of the other two go on, by --on-rank-loss shrink or by --retries, and that the one of NODE ends.
#   Prints the seconds from the cut to each. Needs root, and Open MPI and scaffe on PATH.
. "$(dirname "$0")/common.sh"
set -eu
[[ $# -ge 1 && $1 =~ ^(shrink|retry)$ && ${2:-1} =~ ^[0-2]$ ]] || usage
way=$1 node=${2:-1}
netlab=$(dirname "$(readlink -f "$0")")/netlab.sh
jobs=${netlab%/lab/*}
folder=$(mktemp -d)

cleanup() {
  local i
  for i in 0 1 2; do ip netns pids "nl$i" | xargs -r kill -9; done # mpirun hangs without a node's daemon
  "$netlab" down
  rm -rf "$folder"
}

await() { # await SECONDS COMMAND...: poll until the command succeeds
  local end=$((SECONDS + $1))
  shift
  until "$@"; do
    [ $SECONDS -lt $end ] || { tr -d '\0' <"$folder/log" >&2; fail "not in time: $*"; }
    sleep 0.05
  done
}

says() { grep -aqE "$1" "$folder/log" 2>/dev/null; }

is_empty() { # is_empty NODE: no rank runs on it
  local pid
  for pid in $(ip netns pids "nl$1"); do
    tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -q '^[^ ]*python[^ ]* .*scaffe train ' && return 1
  done
  return 0
}

since() { awk "BEGIN { printf \"%.1f s\", $(date +%s.%N) - $cut }"; }

trap cleanup EXIT
cat >"$folder/net.prototxt" <<'NET'
layer { name: "data" type: "DummyData" top: "data" top: "label" dummy_data_param {
  shape { dim: 48 dim: 400 } shape { dim: 48 } data_filler { type: "gaussian" } data_filler { value: 1 } } }
layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param { num_output: 300 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }
NET
cat >"$folder/solver.prototxt" <<'SOLVER'
net: "net.prototxt" base_lr: 0.01 lr_policy: "fixed" display: 100 max_iter: 1000000 snapshot: 100
snapshot_prefix: "snap" solver_mode: CPU
SOLVER
cd "$folder"
train=(scaffe train --solver solver.prototxt --snapshot auto --keep-snapshots 2)
case $way in
  shrink) mpirun="$jobs/mpirun.sh --ft" goes_on="they go on at iteration" && train+=(--on-rank-loss shrink) ;;
  retry) mpirun="$jobs/mpirun.sh --retries 1" goes_on="2 of 3 rank\(s\) are left" ;;
esac
"$netlab" up 3
NETLAB_MPIRUN=$mpirun "$netlab" run openmpi 1 "${train[@]}" >log 2>&1 &
await 60 says 'state to binary proto file snap_iter_200'
cut=$(date +%s.%N)
ip -n nlswitch link set "port$node" down
await 60 says "$goes_on"
echo "the others go on after $(since)"
await 60 is_empty "$node"
echo "the rank that was cut off has ended after $(since)"
: >log
await 60 says 'Snapshotting solver state'
echo "the others write snapshots after $(since)"
[ -z "$(find . -name '*.tmp*')" ] || fail "half a file: $(find . -name '*.tmp*')"
