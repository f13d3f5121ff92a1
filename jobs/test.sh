#!/usr/bin/env bash
# Run the test suite: all tests in four processes, those of oneDNN again as on processors with narrower instruction sets,
# then the MPI tests on 2 and on 3 ranks, and the workflows on 4 and 5.
#   bash jobs/test.sh [PYTEST ARGUMENTS]        bash jobs/test.sh tests/readers_tests -k shard
set -u
. "$(dirname "$0")/venv.sh"
compile=--no-compile # bytecode is elsewhere, see below
# What is not compiled here, no later program of the environment would keep compiled.
[ -z "${PYTHONDONTWRITEBYTECODE-}" ] || compile=--compile
install test,docs "$compile"
cd "$root" || exit

# Hundreds of processes import the packages: each module is compiled once, in a folder that no checkout has, and so is
# each kernel.
unset PYTHONDONTWRITEBYTECODE
PYTHONPYCACHEPREFIX=$(mktemp -d) || exit
export PYTHONPYCACHEPREFIX
trap 'rm -rf "$PYTHONPYCACHEPREFIX"' EXIT

# Several processes have as many threads each as there are cores: threads that spin keep others from them. numpy's sleep
# after 2 ** 4 cycles without work.
export OMP_WAIT_POLICY=${OMP_WAIT_POLICY:-passive} OPENBLAS_THREAD_TIMEOUT=${OPENBLAS_THREAD_TIMEOUT:-4}

[ -t 1 ] || export NO_COLOR=1 # Open MPI gives ranks a terminal even if there is none
chosen=$#                     # arguments may select no MPI test
failed=0

run() {
  echo "+ $*"
  "$@"
  case $?,$chosen in 0,* | 5,[1-9]*) ;; *) failed=1 ;; esac # 5: pytest found no tests
}

if [ "$chosen" = 0 ]; then # two processes compile what all need
  python -m pytest -q --collect-only tests/scaffe_tests >/dev/null &
  python -m pytest -q --collect-only tests/[!s]*_tests >/dev/null
  wait
fi
# On two cores too: half of the time tests wait, for what they have started. The longest files are among the first.
# The ranks that they start leave the cores to each other: by default Open MPI's spin where there are no more than cores.
run env OMPI_MCA_mpi_yield_when_idle=1 OMPI_MCA_threads_pthreads_yield_strategy=nanosleep \
  python -m pytest -n 4 --dist loadfile --no-loadscope-reorder -m "not mpi" "$@"
if [ "$chosen" = 0 ]; then
  for isa in $(python tests/support/narrower_sets.py); do
    run env ONEDNN_MAX_CPU_ISA="$isa" python -m pytest -n 2 --dist loadfile \
      -k "(onednn or kernels) and not test_onednn_memory" tests/scaffe_tests/engines/onednn \
      tests/scaffe_tests/layers/test_parity.py tests/scaffe_tests/tools/test_layer_kernels.py
  done
fi
[ "$chosen" != 0 ] || set -- tests/mpi_tests tests/device_tests # no rank imports the others
for ranks in "2 mpi" "3 mpi and not two_ranks"; do
  run jobs/mpirun.sh -n "${ranks%% *}" python -m mpi4py -m pytest --with-mpi -m "${ranks#* }" "$@"
done
if [ "$chosen" = 0 ]; then # on more ranks trees have other shapes
  for ranks in 4 5; do
    run jobs/mpirun.sh -n $ranks python -m mpi4py -m pytest --with-mpi -m mpi tests/mpi_tests/test_workflows.py \
      -k "sc_b or alike and SC-OBR"
  done
fi
exit $failed
