#!/usr/bin/env bash
# Train LeNet on real handwritten digits with two MPI ranks, on a machine with Python 3.10 or newer and nothing else.
# Makes an environment ($SCAFFE_VENV, default .venv beside the README). All data is in build/quickstart.
set -eu -o pipefail
. "$(dirname "$0")/venv.sh"
install digits
cd "$root"

data=build/quickstart
mkdir -p "$data"
scaffe convert-digits "$data"
jobs/mpirun.sh -n 2 scaffe train --solver jobs/lenet/solver.prototxt
scaffe test --model jobs/lenet/train_test.prototxt --weights "$data/lenet_iter_400.caffemodel" --iterations 6 2>&1 |
  tee "$data/test.log"

accuracy=$(sed -n 's/.*] accuracy = //p' "$data/test.log" | tail -n 1)
echo "LeNet's accuracy on the 360 held-out digits: $accuracy"
