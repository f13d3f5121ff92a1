#!/usr/bin/env bash
# models.sh [NAME ...]   train small forms of the papers' nets on data made for them; fail where a loss does not fall
#
# Data, nets and logs are in build/models. $MODELS_RANKS ranks train, by default 1.
set -euo pipefail
. "$(dirname "$0")/venv.sh"

# NAME --classes --batch --sizes base_lr max_iter
nets() {
  cat <<'NETS'
word_lm 500 32 hidden=64,layers=2,steps=20 1 300
gnmt 16 32 hidden=32,layers=2,steps=8,source_words=16 0.01 300
ncf 1 128 users=60,items=40,factors=8 0.005 400
mobilenet 8 16 side=64 0.45 200
inception_bn 8 16 side=64 0.0075 200
NETS
}

# Make data and a solver of a net: the arguments are a line of `nets`.
prepare() {
  local name=$1 folder=examples/$1
  case $name in mobilenet | inception_bn) folder=examples/imagenet ;; esac
  scaffe make-data "$name" "$folder" --classes "$2" --sizes "$4"
  scaffe models "$name" --classes "$2" --batch "$3" --sizes "$4" >"$name.prototxt"
  scaffe models "$name" --solver --net "$name.prototxt" |
    sed "/^stepvalue/d; /^stepsize/d; s/^lr_policy.*/lr_policy: \"fixed\"/; s/^base_lr.*/base_lr: $5/
         s/^test_iter.*/test_iter: 4/; s/^test_interval.*/test_interval: $6/
         s/^max_iter.*/max_iter: $6/; s/^display.*/display: 10/" >"${name}_solver.prototxt"
  echo 'random_seed: 1' >>"${name}_solver.prototxt"
}

known=$(nets | cut -d ' ' -f 1 | tr '\n' ' ')
for name in "$@"; do
  [[ " $known" == *" $name "* ]] || fail "unknown net '$name'; known: ${known% }"
done
case ${MODELS_RANKS:-1} in *[!0-9]* | 0) fail "MODELS_RANKS is '$MODELS_RANKS'; it must be 1 or more" ;; esac
install hdf5

mkdir -p "$root/build/models"
cd "$root/build/models"
failed=0
while read -r name settings; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  # shellcheck disable=SC2086  # words
  prepare "$name" $settings
  "$root/jobs/mpirun.sh" -n "${MODELS_RANKS:-1}" scaffe train --solver "${name}_solver.prototxt" \
    2>"$name.log" </dev/null || fail "$name: $(tail -n 1 "$name.log"); see $PWD/$name.log"
  python "$root/jobs/loss_falls.py" "$name" "$name.log" || failed=1
done < <(nets)
exit $failed
