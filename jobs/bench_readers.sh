#!/usr/bin/env bash
# bench_readers.sh [OPTION ...]   how fast batches are read, against what bounds it: ratios, medians of turns in one run
#
# TORCH=/path/to/python measures torch.utils.data.DataLoader beside them, with that interpreter. Other work on the
# machine falsifies the figures. Options are jobs/bench_readers.py's: --turns, --readers, --folder.
set -eu
cd "$(dirname "$0")/.."
export PATH=${SCAFFE_VENV:-$PWD/.venv}/bin:$PATH PYTHONPATH=$PWD OMP_NUM_THREADS=1
exec python jobs/bench_readers.py ${TORCH:+--torch "$TORCH"} "$@"
