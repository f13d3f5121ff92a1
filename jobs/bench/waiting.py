"""The share of the training time in which a net waits for data: Caffe's CIFAR-10 quick (Krizhevsky's).

    python jobs/bench/waiting.py LMDB ITERATIONS

One rank reads an LMDB of 3 x 32 x 32 images with one reader thread and computes with another. See reading.sh.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile

DATA = """
layer {{ name: "cifar" type: "Data" top: "data" top: "label"
  transform_param {{ mean_value: 125 mean_value: 123 mean_value: 114 mirror: true }}
  data_param {{ source: "{source}" batch_size: 100 backend: LMDB }} }}
"""
CONVOLUTION = """
layer {{ name: "conv{n}" type: "Convolution" bottom: "{bottom}" top: "conv{n}"
  convolution_param {{ num_output: {outputs} pad: 2 kernel_size: 5 weight_filler {{ type: "gaussian" std: {std} }} }} }}
"""
POOL = """
layer {{ name: "pool{n}" type: "Pooling" bottom: "conv{n}" top: "pool{n}"
  pooling_param {{ pool: {pool} kernel_size: 3 stride: 2 }} }}
"""
RELU = 'layer {{ name: "relu{n}" type: "ReLU" bottom: "{blob}" top: "{blob}" }}\n'
INNER = """
layer {{ name: "ip{n}" type: "InnerProduct" bottom: "{bottom}" top: "ip{n}"
  inner_product_param {{ num_output: {outputs} weight_filler {{ type: "gaussian" std: 0.1 }} }} }}
"""
LOSS = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }\n'
SOLVER = """
net: "net" base_lr: 0.001 lr_policy: "fixed" max_iter: {iterations} random_seed: 1
solver_mode: CPU snapshot_prefix: "none" snapshot_after_train: false
"""


def quick(source: str) -> str:
    """Return the training net over the LMDB `source`."""
    first = CONVOLUTION.format(n=1, bottom="data", outputs=32, std=0.0001) + POOL.format(n=1, pool="MAX")
    second = CONVOLUTION.format(n=2, bottom="pool1", outputs=32, std=0.01) + RELU.format(n=2, blob="conv2")
    third = CONVOLUTION.format(n=3, bottom="pool2", outputs=64, std=0.01) + RELU.format(n=3, blob="conv3")
    return "".join(
        (DATA.format(source=source), first, RELU.format(n=1, blob="pool1"), second, POOL.format(n=2, pool="AVE"))
        + (third, POOL.format(n=3, pool="AVE"), INNER.format(n=1, bottom="pool3", outputs=64))
        + (INNER.format(n=2, bottom="ip1", outputs=10), LOSS)
    )


def waited(source: str, iterations: int = 100) -> float:
    """Train on an LMDB of 3 x 32 x 32; return the percentage of the time spent waiting, from the end of the log.

    Raises RuntimeError, with the log, if the training fails or does not log it.
    """
    command = [sys.executable, "-m", "scaffe", "train", "--solver", "solver", "--threads", "1", "--reader-threads", "1"]
    source = os.path.abspath(source)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("net", quick(source)), ("solver", SOLVER.format(iterations=iterations))):
            with open(os.path.join(folder, name), "w") as file:
                file.write(text)
        run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    said = re.search(r"Reading: ([\d.]+)% of the time", run.stdout + run.stderr)
    if run.returncode or said is None:
        raise RuntimeError(f"the training failed:\n{run.stdout}{run.stderr}")
    return float(said[1])


if __name__ == "__main__":
    if len(sys.argv) != 3 or not sys.argv[2].isdecimal():
        raise SystemExit("usage: waiting.py LMDB ITERATIONS")
    print(f"{waited(sys.argv[1], int(sys.argv[2])):g} % of the time spent waiting for records")
