#!/usr/bin/env bash
# Train small forms of the papers' nets on data made for them: bash jobs/models.sh [NAME ...]
# Data, nets and logs are in build/models. $MODELS_RANKS ranks train, by default 1.
set -euo pipefail
. "$(dirname "$0")/venv.sh"
install hdf5

# NAME --classes --batch --sizes base_lr max_iter
nets() {
  cat <<'NETS'
word_lm 500 32 hidden=64,layers=2,steps=20 1 300
gnmt 16 32 hidden=32,layers=2,steps=8,source_words=16 0.01 300
ncf 1 128 users=60,items=40,factors=8 0.005 400
mobilenet 8 16 side=64 0.045 100
inception_bn 8 16 side=64 0.0075 100
NETS
}

mkdir -p "$root/build/models"
cd "$root/build/models"
while read -r name classes batch sizes rate iterations; do
  [ $# = 0 ] || [[ " $* " == *" $name "* ]] || continue
  folder=examples/$name
  case $name in mobilenet | inception_bn) folder=examples/imagenet ;; esac
  scaffe make-data "$name" "$folder" --classes "$classes" --sizes "$sizes"
  scaffe models "$name" --classes "$classes" --batch "$batch" --sizes "$sizes" > "$name.prototxt"
  scaffe models "$name" --solver --net "$name.prototxt" |
    sed "/^stepvalue/d; /^stepsize/d; s/^lr_policy.*/lr_policy: \"fixed\"/; s/^base_lr.*/base_lr: $rate/
         s/^test_iter.*/test_iter: 4/; s/^test_interval.*/test_interval: $iterations/
         s/^max_iter.*/max_iter: $iterations/; s/^display.*/display: 20/" > "${name}_solver.prototxt"
  echo 'random_seed: 1' >> "${name}_solver.prototxt"
  "$root/jobs/mpirun.sh" -n "${MODELS_RANKS:-1}" scaffe train --solver "${name}_solver.prototxt" \
    2> "$name.log" < /dev/null
  grep ' net output' "$name.log" | sed -n '1,3p' && grep ' net output' "$name.log" | tail -n 3
done < <(nets)
