#!/usr/bin/env bash
#SBATCH --job-name=scaffe
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=4
#SBATCH --cpus-per-task=4
#SBATCH --time=04:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --no-kill
#SBATCH --open-mode=append
#
# Train with MPICH, in as many jobs as are needed:
#   sbatch jobs/sbatch_mpich.sh solver.prototxt [cluster.toml]
# A cluster.toml beside the solver is the default. Copy this script and set the lines above.
# SLURM sends USR1 to this script 120 s before the time limit: enough for the current iteration and a snapshot. scaffe
# then exits with status 75, and the job is queued again. A process that is lost costs the iterations since the newest
# snapshot: scaffe retry starts the ranks again, in the same job. After the loss of a node, other than the first, it
# starts those of the nodes that are left (--no-kill); with fewer than --min-ranks, status 76, the job is queued again.
# Without its first node the job ends, and SLURM queues it again.
set -u
asked=''
trap asked=USR1 USR1
solver=${1:?usage: sbatch sbatch_mpich.sh SOLVER [CLUSTER.toml]}
config=${2:-$(dirname "$solver")/cluster.toml}
[ $# -gt 1 ] || [ -e "$config" ] || config=
export OMP_NUM_THREADS=${SLURM_CPUS_PER_TASK:-1}

# MPICH's ranks find each other by pmi2; with another --mpi srun starts many jobs of one rank each.
# --kill-on-bad-exit: if a rank is lost the others end too.
scaffe retry -- srun --mpi=pmi2 --kill-on-bad-exit=1 --cpus-per-task="${SLURM_CPUS_PER_TASK:-1}" scaffe train --solver "$solver" ${config:+--run-config "$config"} --snapshot auto &
job=$!

# Sent each second: a job that is just starting may lose it. scaffe retry and srun forward it to the ranks. Not by wait,
# which a signal interrupts: it may then lose the status of a job that ends at that moment.
while kill -"${asked:-0}" $job 2>/dev/null; do sleep 1; done
wait $job
status=$?
case $asked$status in USR10 | USR12) ;; USR1*) status=75 ;; esac # also where it ended what had just begun
case $status in 75 | 76) scontrol requeue "$SLURM_JOB_ID" ;; esac
exit $status
