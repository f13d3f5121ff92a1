#!/usr/bin/env bash
# Run the tests and benchmarks that need a GPU, and print one table.
#   bash jobs/prove_on_gpu.sh [OUT]      logs, table.txt, table.md, table.json in OUT (default: ./gpu_proof); all of
#                                        these, and the caches of kernels and plans, in OUT/proof.tar.gz
#   WHEELS=FOLDER ...                    first install that folder's wheels (jobs/wheels.sh) into OUT/site, nothing else
#   PARITY=FOLDER ...                    compare with Caffe's results in that folder
#   STEPS=layers,ranks ...               only these of machine, kernels, layers, solvers, products, batches, parity,
#                                        ranks, lenet, loss, reduce, bandwidth, bench-float32, bench-tf32, bench-bf16;
#                                        OUT's table keeps the lines of the others
#   QUICK=1 ...                          the short form of each step, about 8 minutes in all
#   SECONDS_IN_ALL=570 ...               stop 570 seconds after the start, as a job's slot of 10 minutes asks
#   RESUME=1 ...                         skip what has passed with other code too, and in STEPS
#   REHEARSE=1 ...                       the same steps without a GPU, on stand-ins for device arrays
# A step that has passed with the same code is skipped, unless STEPS names it: the next slot does what is left. Where
# OUT has proof.tar.gz alone, a run on another machine, it goes on from that.
# The active python3 (or PYTHON) needs numpy, xxhash, pytest and pytest-mpi, and cupy unless REHEARSE=1. A step without
# its requirements is skipped. Exit code: 0 all passed, 1 some failed or did not run, 2 none could run.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)

fail() {
  echo "prove_on_gpu.sh: $*" >&2
  exit 2
}

python=$(command -v "${PYTHON:-python3}") || fail "no ${PYTHON:-python3}; PYTHON names the interpreter"
[[ $python == /* ]] || python=$PWD/$python
out=$(mkdir -p "${1:-gpu_proof}" && cd "${1:-gpu_proof}" && pwd) || fail "cannot make the folder ${1:-gpu_proof}"
[[ ${SECONDS_IN_ALL:-1} =~ ^[0-9]+$ ]] || fail "SECONDS_IN_ALL is '$SECONDS_IN_ALL'; expected whole seconds, such as 570"
for name in WHEELS PARITY; do
  [ -z "${!name:-}" ] && continue
  [ -d "${!name}" ] || fail "$name is ${!name}, which is no folder"
  export "$name=$(cd "${!name}" && pwd)"
done
{ : >>"$out/lock"; } 2>/dev/null || fail "cannot write into $out; name another folder"
exec 9>>"$out/lock"
flock -n 9 || fail "another run writes into $out; name another folder"

# Into a folder of its own: the interpreter's may be read-only, managed by the system, or in use by other runs.
install_wheels() {
  local stamp
  stamp=$("$python" -V && cd "$WHEELS" && cksum ./*.whl) || fail "no wheels in $WHEELS"
  [ "$stamp" = "$(cat "$out/site/wheels" 2>/dev/null)" ] && return
  rm -rf "$out/site"
  "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
    --ignore-installed --no-warn-script-location --prefix "$out/site" "$WHEELS"/*.whl ||
    fail "cannot install the wheels of $WHEELS; pip's message is above"
  echo "$stamp" >"$out/site/wheels"
}

# Put a prefix's packages and programs on the paths; Debian's Python has local/ and dist-packages.
use_prefix() {
  local folder
  for folder in "$1"/{,local/}lib*/python*/{site,dist}-packages; do
    [ -d "$folder" ] && PYTHONPATH=$folder${PYTHONPATH:+:$PYTHONPATH}
    # The frontend of cuDNN looks on this path, then in the interpreter's own packages.
    [ -d "$folder/nvidia/cudnn/lib" ] && LD_LIBRARY_PATH=$folder/nvidia/cudnn/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  for folder in "$1"/{,local/}; do
    [ -d "$folder/bin" ] && PATH=$folder/bin:$PATH
    [ -d "$folder/lib" ] && LD_LIBRARY_PATH=$folder/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  done
  export PYTHONPATH PATH LD_LIBRARY_PATH
}

[ -z "${WHEELS:-}" ] || install_wheels
[ ! -d "$out/site" ] || use_prefix "$out/site"
# The mpirun of a wheel is beside the interpreter, which may not be on PATH.
command -v mpirun >/dev/null || PATH=$PATH:$(dirname "$python")
export PYTHONPATH=$root:$root/tests/support:$root/jobs${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Kernels that CuPy and PyTorch compiled, and plans that were timed, for the next slot.
export XDG_CACHE_HOME=$out/cache CUPY_CACHE_DIR=$out/cache/cupy TORCHINDUCTOR_CACHE_DIR=$out/cache/inductor

if [ -z "${REHEARSE:-}" ]; then
  export SCAFFE_ON_GPU=1
  said=$("$python" -c 'from scaffe.devices import gpu; gpu.find()' 2>&1)
  case $?,$said in
    0,*) ;;
    *"No module named"*) fail "${said##*Error: } for $python; PYTHON names another, WHEELS a folder of wheels to install" ;;
    *) fail "${said##*Error: }" ;;
  esac
fi
cd "$root" && exec "$python" jobs/prove.py "$out"
