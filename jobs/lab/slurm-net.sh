#!/usr/bin/env bash
# slurm-net.sh
#   Start a real SLURM on the nodes of the emulated network that `netlab.sh up` made.
#   Its commands run inside a node: netlab.sh sh 0 sbatch ... (with SLURM_CONF as printed). slurm-down.sh ends it.
set -eu
. "$(dirname "$0")/slurm.sh"
[ $# = 0 ] || usage
netlab=$(dirname "$0")/netlab.sh
nodes=$(cat "$lab/net/nodes" 2>/dev/null) || fail "there is no emulated network; netlab.sh up NODES makes one"

munge_up
cluster slurm-net "nl0(10.77.0.1)"
for ((i = 0; i < nodes; i++)); do node "nl$i" NodeAddr=10.77.0.$((i + 1)) Port=17000; done
partition "nl[0-$((nodes - 1))]"

"$netlab" sh 0 slurmctld -c
for ((i = 0; i < nodes; i++)); do "$netlab" sh "$i" slurmd -N "nl$i"; done
await_idle "$nodes" "$netlab" sh 0
echo "export SLURM_CONF=$SLURM_CONF"
