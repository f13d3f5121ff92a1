#!/usr/bin/env bash
# reading.sh [OPTION ...]   how fast batches are read, and their bounds: medians over the turns of one run
#
# TORCH=/path/to/python also measures torch.utils.data.DataLoader, in that interpreter. Other work on the machine
# distorts the figures. Options are those of jobs/bench/reading.py: --turns, --readers, --folder.
set -eu
cd "$(dirname "$0")/../.."
export PATH=${SCAFFE_VENV:-$PWD/.venv}/bin:$PATH PYTHONPATH=$PWD OMP_NUM_THREADS=1
exec python jobs/bench/reading.py ${TORCH:+--torch "$TORCH"} "$@"
