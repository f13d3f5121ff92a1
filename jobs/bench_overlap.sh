#!/usr/bin/env bash
# bench_overlap.sh [NODES [RATE [NET ...]]]   what each workflow hides, over NODES emulated nodes with links of RATE
#
# One rank a node; layers take the time of a GPU of 5 TFLOP/s (jobs/bench_overlap.py has the options: ARGS="...").
# Needs root, and an environment with Open MPI: $SCAFFE_VENV, or .venv as jobs/test.sh makes it. Rows are medians of turns within one run; other work on the machine falsifies them.
set -eu
cd "$(dirname "$0")/.."
export PATH=${SCAFFE_VENV:-$PWD/.venv}/bin:$PATH PYTHONPATH=$PWD
nodes=${1:-4} rate=${2:-1gbit}
shift $(($# < 2 ? $# : 2))
[ $# -gt 0 ] || set -- caffenet googlenet
jobs/lab/netlab.sh up "$nodes" "$rate"
trap 'jobs/lab/netlab.sh down' EXIT
for net; do
  # shellcheck disable=SC2086
  OMP_NUM_THREADS=1 jobs/lab/netlab.sh run openmpi 1 python jobs/bench_overlap.py "$net" ${ARGS:-} 2>&1 | grep -v '^I[0-9]'
done
