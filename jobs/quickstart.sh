#!/usr/bin/env bash
# Train LeNet on real handwritten digits with two MPI ranks, from a machine with nothing but Python 3.10 or newer.
# Makes an environment ($SCAFFE_VENV, default .venv beside the README); all data goes to build/quickstart.
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
