#!/usr/bin/env bash
# Run on a machine with a GPU what only such a machine can prove, and print one table.
#   bash jobs/prove_on_gpu.sh [OUT]                       logs and table in OUT, ./gpu_proof by default
#   WHEELS=/some/folder bash jobs/prove_on_gpu.sh         first install what lies there; nothing else is installed
# The active Python needs cupy, numpy and pytest; steps whose needs are missing are told as skipped.
set -u
root=$(cd "$(dirname "$0")/.." && pwd)
out=$(mkdir -p "${1:-gpu_proof}" && cd "${1:-gpu_proof}" && pwd) || exit 2
cd "$root" || exit 2
export PYTHONPATH=$root:$root/tests${PYTHONPATH:+:$PYTHONPATH} SCAFFE_ON_GPU=1 NO_COLOR=1 OMP_NUM_THREADS=${OMP_NUM_THREADS:-1}
if [ -n "${WHEELS:-}" ]; then
  python -m pip install --quiet --no-index --find-links "$WHEELS" "$WHEELS"/*.whl || exit 2
fi
if ! said=$(python -c 'from scaffe import gpu; gpu.find()' 2>&1); then
  echo "prove_on_gpu.sh: ${said##*LaunchError: }" >&2
  exit 2
fi

failed=0
printf '%-34s %-8s %7s  %s\n' step result seconds said | tee "$out/table.txt"

# step NAME COMMAND...: run it, its output in OUT/NAME.log, and add a line to the table.
step() {
  local name=$1 start=$SECONDS code result
  shift
  timeout 600 "$@" >"$out/$name.log" 2>&1
  code=$?
  case $code in 0) result=passed ;; 5) result=skipped ;; *) result=FAILED failed=1 ;; esac
  printf '%-34s %-8s %7d  %s\n' "$name" "$result" $((SECONDS - start)) \
    "$(grep -aE '(passed|failed|skipped|error).* in |^scaffe: |Average Forward-Backward' "$out/$name.log" | tail -n 1)" |
    tee -a "$out/table.txt"
}

step device_query python -m scaffe device-query
step kernels_compile python -m pytest -q tests/scaffe_tests/test_cuda_kernels.py tests/collectives_tests/test_device_kernels.py
step layers_against_caffe python -m pytest -q tests/scaffe_tests/test_parity.py -k "strict or cuda"
step updates_dropout_lenet python -m pytest -q tests/scaffe_tests/test_device_arrays.py -k "kernel or dropout"
step convolutions_and_products python -m pytest -q tests/device_tests/test_convolution_cuda.py \
  tests/scaffe_tests/test_cuda_layouts.py tests/scaffe_tests/test_cuda_plans.py
command -v mpirun >/dev/null || echo "no mpirun: nothing with several ranks is run" | tee -a "$out/table.txt"
for ranks in 1 2 4; do
  command -v mpirun >/dev/null || break
  step "train_and_collectives_${ranks}_ranks" jobs/mpirun.sh -n $ranks \
    python -m mpi4py -m pytest --with-mpi -m mpi -q tests/device_tests
done
for pair in alexnet:256 googlenet:128 resnet50:64 vgg16:64 cifar10_quick:128; do
  net=${pair%:*}
  python -m scaffe models "$net" --data dummy --batch "${pair#*:}" >"$out/$net.prototxt" &&
    step "time_$net" python -m scaffe time --model "$out/$net.prototxt" --iterations 20 --device cuda
done
exit $failed
