#!/usr/bin/env bash
# Run the tests and benchmarks that need a GPU, in the order of their value, and print one table.
#   bash jobs/prove_on_gpu.sh [OUT]      table.txt, table.md, table.json and proof.tar.gz, with all logs and the caches of
#                                        kernels and plans, in OUT (default: ./gpu_proof); anew after each step
#   WORK=FOLDER ...                      logs, caches and wheels there, not in OUT: these four files alone are in OUT
#   WHEELS=FOLDER ...                    first install that folder's wheels (jobs/wheels.sh) into WORK/site, nothing else
#   PARITY=FOLDER ...                    compare with Caffe's results in that folder
#   STEPS=a,ranks,alexnet-bf16 ...       only the steps with all of these tags, of one of the groups. The part: a (machine,
#                                        kernels, products, ranks, bench: four nets in bf16), b (layers, solvers, batches,
#                                        parity, bandwidth, reduce, profile, bench: tf32) or c (bench: compiled, float32,
#                                        small nets; curves, lenet, loss). Of a bench the net, the numbers and PyTorch's
#                                        form: eager, graphs, compiled, compiled_graphs, autotuned.
#                                        OUT's table keeps the lines of the others
#   QUICK=1 ...                          the short form of each step
#   SECONDS_IN_ALL=570 ...               stop 570 seconds after the start, as a job's slot of 10 minutes asks
#   RESUME=1 ...                         skip what has passed with other code too, and in STEPS
#   REHEARSE=1 ...                       the same steps without a GPU, on stand-ins for device arrays
# A step that has passed with the same code is skipped, unless STEPS names it: the next slot does what is left. Where
# WORK or OUT has proof.tar.gz alone, a run on another machine, it goes on from that. Steps that time something, be it
# cuDNN's plans, run one at a time; the others run first, beside one another, and their plans are not kept.
# The active python3 (or PYTHON) needs numpy, xxhash, pytest and pytest-mpi, and cupy unless REHEARSE=1. A step without
# its requirements is skipped. Exit code: 0 all passed, 1 some failed or did not run, 2 none could run; 143 or 130 after
# SIGTERM or SIGINT, within 4 seconds: the steps that run are ended, and the table says "not run" of what is left.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)

fail() {
  echo "prove_on_gpu.sh: $*" >&2
  exit 2
}

python=$(command -v "${PYTHON:-python3}") || fail "no ${PYTHON:-python3}; PYTHON names the interpreter"
[[ $python == /* ]] || python=$PWD/$python
folder() {
  mkdir -p "$1" && cd "$1" && pwd
}
out=$(folder "${1:-gpu_proof}") || fail "cannot make the folder ${1:-gpu_proof}"
work=$(folder "${WORK:-$out}") || fail "cannot make the folder $WORK"
[[ ${SECONDS_IN_ALL:-1} =~ ^[0-9]+$ ]] || fail "SECONDS_IN_ALL is '$SECONDS_IN_ALL'; expected whole seconds, such as 570"
for name in WHEELS PARITY; do
  [ -z "${!name:-}" ] && continue
  [ -d "${!name}" ] || fail "$name is ${!name}, which is no folder"
  export "$name=$(cd "${!name}" && pwd)"
done
{ : >>"$work/lock"; } 2>/dev/null || fail "cannot write into $work; name another folder"
exec 9>>"$work/lock"
flock -n 9 || fail "another run writes into $work; name another folder"

# Run a program that a signal to this script ends too.
within() {
  local child number
  for number in 2 15; do trap 'kill ${child:-} 2>/dev/null; exit '$((128 + number)) "$number"; done
  "$@" &
  child=$!
  wait "$child"
}

# Into a folder of its own: the interpreter's may be read-only, managed by the system, or in use by other runs.
install_wheels() {
  local stamp
  stamp=$("$python" -V && cd "$WHEELS" && cksum ./*.whl) || fail "no wheels in $WHEELS"
  [ "$stamp" = "$(cat "$work/site/wheels" 2>/dev/null)" ] && return
  rm -rf "$work/site"
  within "$python" -m pip install --quiet --disable-pip-version-check --no-cache-dir --no-index --no-deps --no-compile \
    --ignore-installed --no-warn-script-location --prefix "$work/site" "$WHEELS"/*.whl ||
    fail "cannot install the wheels of $WHEELS; pip's message is above"
  echo "$stamp" >"$work/site/wheels"
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
[ ! -d "$work/site" ] || use_prefix "$work/site"
# The mpirun of a wheel is beside the interpreter, which may not be on PATH.
command -v mpirun >/dev/null || PATH=$PATH:$(dirname "$python")
export PYTHONPATH=$root:$root/tests/support:$root/tests/support/stand_ins:$root/jobs${PYTHONPATH:+:$PYTHONPATH} PYTHONDONTWRITEBYTECODE=1 NO_COLOR=1
export OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
# Kernels that CuPy and PyTorch compiled, and plans that were timed, for the next slot.
export XDG_CACHE_HOME=$work/cache CUPY_CACHE_DIR=$work/cache/cupy TORCHINDUCTOR_CACHE_DIR=$work/cache/inductor

if [ -z "${REHEARSE:-}" ]; then
  export SCAFFE_ON_GPU=1
  within "$python" -c 'from scaffe.devices import gpu; gpu.find()' >"$work/gpu" 2>&1
  case $?,$(cat "$work/gpu") in
    0,*) ;;
    *"No module named"*) fail "$(sed 's/.*Error: //;$!d' "$work/gpu") for $python; PYTHON names another, WHEELS a folder of wheels to install" ;;
    *) fail "$(sed 's/.*Error: //;$!d' "$work/gpu")" ;;
  esac
  rm "$work/gpu"
fi
[ -z "${SECONDS_IN_ALL:-}" ] || export SECONDS_IN_ALL=$((SECONDS_IN_ALL - SECONDS)) # since this script's start
cd "$root" && exec "$python" jobs/prove.py "$out" "$work"
