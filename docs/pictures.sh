#!/usr/bin/env bash
# Make the documentation's pictures by the project's own commands: bash docs/pictures.sh, in an environment with the
# extras digits, draw and plot.
set -eu
cd "$(dirname "$0")/.."
out=docs/pictures data=build/quickstart
mkdir -p "$out" "$data"
[ -e "$data/digits_train_lmdb" ] || scaffe convert-digits "$data"
sed -e 's/^max_iter.*/max_iter: 60/' -e '/^test_i/d' -e '/^snapshot:/d' jobs/lenet/solver.prototxt >build/pictures.prototxt

scaffe draw-net jobs/lenet/train_test.prototxt "$out/lenet.png"
scaffe inspect-db "$data/digits_train_lmdb" --plot "$out/sheet.png"
for workflow in SC-B SC-OBR; do
  name=timeline_$(echo "$workflow" | tr 'A-Z-' 'a-z_')
  jobs/mpirun.sh -n 2 scaffe train --solver build/pictures.prototxt --workflow "$workflow" --drive helper \
    --bucket-bytes 0 --timeline "build/$name.json"
  scaffe timeline "build/$name.json" --plot "$out/$name.png"
done
for kind in SGD Adam; do
  sed -e 's/^display.*/display: 5/' -e 's/^test_interval.*/test_interval: 25/' -e '/^snapshot/d' \
    jobs/lenet/solver.prototxt >build/$kind.prototxt
  printf 'snapshot_prefix: "build/%s"\ntype: "%s"\n' $kind $kind >>build/$kind.prototxt
done
sed -i 's/^base_lr.*/base_lr: 0.001/' build/Adam.prototxt
for kind in SGD Adam; do
  scaffe train --solver build/$kind.prototxt 2>build/$kind.log
done
scaffe plot-log build/SGD.log build/Adam.log "$out/plot-log.png" --log-scale
jobs/mpirun.sh -n 2 python -m collectives.bench reduce -m 1024:16777216 -i 20 --algorithm auto,mpi,binomial --plot "$out/reduce.png"
scaffe models resnet50 --batch 8 --data dummy >build/resnet50.prototxt
scaffe time --model build/resnet50.prototxt --threads 1 --iterations 5 --profile build/resnet50.json
scaffe simulate-instances build/resnet50.json --batch 64 --core-bandwidth 20e9 --gathers slices --launch-groups 1 \
  --plot "$out/simulated_instances.png"
for page in docs/pycaffe/*.md; do # a page's blocks are one program, which draws its pictures
  mkdir -p build/pycaffe
  sed -n '/^```python$/,/^```$/{/^```/!p}' "$page" |
    (cd build/pycaffe && MPLBACKEND=Agg OMP_NUM_THREADS=1 python -)
done
cp build/pycaffe/*.png "$out"
[ -e build/fine-tune/net/curves.png ] || bash jobs/fine_tune.sh
for name in curves confusion; do
  cp build/fine-tune/net/$name.png "$out/fine_tune_$name.png"
done
dot -Tsvg docs/house.dot -o "$out/house.svg"
