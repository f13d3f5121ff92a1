#!/usr/bin/env bash
# papers.sh [--keep] [ID ...]   measure, model, judge and draw the papers' figures, or those of the IDs
# papers.sh --list              print the IDs
#
# Writes jobs/papers/results/ID.json, docs/papers/ID.png and docs/papers/*.md, and prints the verdicts. A figure's
# result is complete when the next one begins: start again with the IDs that are left, or with --keep, which measures
# only what has no result. Emulated clusters need root (jobs/lab/netlab.sh); without it those figures keep their results.
# Needs Open MPI and the extras digits and plot: $SCAFFE_VENV, or the .venv that jobs/test.sh makes. Other work on the
# machine distorts the measurements.
set -eu
cd "$(dirname "$0")/.."
export PATH=${SCAFFE_VENV:-$PWD/.venv}/bin:$PATH PYTHONPATH=$PWD:$PWD/jobs/bench OMP_NUM_THREADS=1
python3 -c '
import sys
from importlib.util import find_spec
missing = [name for name in ("numpy", "mpi4py", "matplotlib", "sklearn") if not find_spec(name)]
sys.exit(f"papers.sh: {sys.executable} has no {missing[0]}; jobs/test.sh makes an environment with all" if missing else 0)'
exec python3 jobs/papers/run.py "$@"
