#!/usr/bin/env bash
# slurm-up.sh [NODES]
#   Start a real SLURM with NODES (default 2) nodes n0, n1, ..., all of them this machine.
#   Prints the variable to export for sbatch and other commands. slurm-down.sh ends it.
set -eu
. "$(dirname "$0")/slurm.sh"
nodes=${1:-2}
[ "$nodes" -ge 1 ] 2>/dev/null || usage

host=$(hostname -s)
munge_up
cluster slurm "$host(127.0.0.1)"
for ((i = 0; i < nodes; i++)); do node "n$i" NodeHostname="$host" NodeAddr=127.0.0.1 Port=$((17000 + i)); done
partition "n[0-$((nodes - 1))]"

slurmctld -c
for ((i = 0; i < nodes; i++)); do slurmd -N "n$i"; done
await_idle "$nodes"
echo "export SLURM_CONF=$SLURM_CONF"
