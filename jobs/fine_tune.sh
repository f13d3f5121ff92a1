#!/usr/bin/env bash
# From a folder of pictures to a classifier: LeNet on 5,000 of MNIST's digits as PNG files, with two MPI ranks.
# Makes an environment ($SCAFFE_VENV, default .venv beside the README). All data is in build/fine-tune.
set -eu -o pipefail
. "$(dirname "$0")/venv.sh"
install mnist
cd "$root"

data=build/fine-tune
mkdir -p "$data"
scaffe make-data mnist "$data/digits"
jobs/mpirun.sh -n 2 scaffe fine-tune "$data/digits" --out "$data/net"
scaffe classify "$data/net" "$data/digits/3/1500.png" --top 3
