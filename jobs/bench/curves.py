"""Loss curves: scaffe in float32 and in bf16, and PyTorch in both, from the same weights over the same batches.

    python jobs/bench/curves.py [--device cuda] [--iterations 300]

A small net with the layers of the model zoo's nets learns to tell ten noisy pictures, of which a fifth has a random
label; after 300 iterations the loss is near 1.5. Prints the mean losses of each tenth of each curve, and how far they
are apart: scaffe's bf16 from its float32, and both from PyTorch's. Exit code 1, from 300 iterations on, where that is
more than APART, or where float32 does not learn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext

import numpy as np
import torch
from google.protobuf import text_format
from torch_net import TorchNet

import scaffe
from scaffe.compute import Compute
from scaffe.devices import gpu
from scaffe.errors import EngineError
from scaffe.monitor.log import log
from scaffe.monitor.watching import Watching
from scaffe.parallel.world import open_world
from scaffe.proto import SolverParameter

BATCH, CLASSES, SHAPE = 64, 10, (3, 24, 24)
RATE, MOMENTUM, DECAY = 0.02, 0.9, 5e-4
ENOUGH, APART, LEARNT = 300, 0.05, 1.8  # on a CPU the means of tenths are 2 % apart, and the last is 1.54


def _layer(kind: str, name: str, bottom: str, top: str, param: str = "") -> str:
    ends = " ".join([f'bottom: "{one}"' for one in bottom.split()] + [f'top: "{top}"'])
    return f'layer {{ name: "{name}" type: "{kind}" {ends} {param} }}\n'


def _block(i: int, bottom: str, outputs: int) -> str:
    """Return a convolution, its normalisation and a ReLU, in place, with top `bI`."""
    fields = f"num_output: {outputs} kernel_size: 3 pad: 1"
    filler = 'weight_filler { type: "msra" }'
    text = _layer("Convolution", f"conv{i}", bottom, f"c{i}", f"convolution_param {{ {fields} {filler} }}")
    text += _layer("BatchNorm", f"bn{i}", f"c{i}", f"b{i}")
    text += _layer("Scale", f"scale{i}", f"b{i}", f"b{i}", "scale_param { bias_term: true }")
    return text + _layer("ReLU", f"relu{i}", f"b{i}", f"b{i}")


def net() -> str:
    """Return the net: convolutions with and without BatchNorm, LRN, both poolings, a sum and a Concat."""
    dims = " ".join(f"dim: {size}" for size in (BATCH, *SHAPE))
    pool, filler = "pooling_param { pool: %s kernel_size: 3 stride: 2 }", 'weight_filler { type: "xavier" }'
    text = _layer("Input", "data", "", "data", f"input_param {{ shape {{ {dims} }} }}")
    text += _layer("Input", "label", "", "label", f"input_param {{ shape {{ dim: {BATCH} }} }}")
    fields = f"num_output: 16 kernel_size: 5 {filler}"
    text += _layer("Convolution", "conv0", "data", "c0", f"convolution_param {{ {fields} }}")
    text += _layer("ReLU", "relu0", "c0", "c0") + _layer("Pooling", "pool0", "c0", "p0", pool % "MAX")
    text += _layer("LRN", "norm0", "p0", "n0", "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }")
    text += _block(1, "n0", 16) + _block(2, "b1", 16) + _layer("Eltwise", "sum", "n0 b2", "s")
    text += _block(3, "s", 16) + _layer("Concat", "join", "s b3", "j")
    text += _layer("Pooling", "pool1", "j", "p1", pool % "AVE")
    ip = f"inner_product_param {{ num_output: {CLASSES} {filler} }}"
    return text + _layer("InnerProduct", "ip", "p1", "ip", ip) + _layer("SoftmaxWithLoss", "loss", "ip label", "loss")


def batches(iterations: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Yield images (BATCH x SHAPE) and labels (BATCH)."""
    rng = np.random.default_rng(7)
    pictures = rng.standard_normal((CLASSES, *SHAPE), np.float32) / 4
    for _ in range(iterations):
        shown, wrong = rng.integers(0, CLASSES, BATCH), rng.random(BATCH) < 0.2
        labels = np.where(wrong, rng.integers(0, CLASSES, BATCH), shown)
        yield pictures[shown] + rng.standard_normal((BATCH, *SHAPE), np.float32), labels


def solver(numbers: str, device: str) -> scaffe.Solver:
    """Return scaffe's solver."""
    param = SolverParameter(type="SGD", base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    text_format.Parse(net(), param.net_param)
    param.max_iter, param.random_seed, param.snapshot_after_train = 10**9, 1, False
    world = open_world()
    world.take_gpu(gpu.choose("cuda") if device == "cuda" else None)
    watching = Watching(stall_seconds=0)
    return scaffe.Solver(param, world=world, compute=Compute(numbers=numbers, plan="fixed"), watching=watching)


def ours(numbers: str, device: str, iterations: int) -> list[float]:
    """Return scaffe's losses."""
    with closing(solver(numbers, device)) as made:

        def step(x: np.ndarray, y: np.ndarray) -> float:
            made.net.blobs["data"].data[...], made.net.blobs["label"].data[...] = x, y
            made.step(1)
            return float(made.net.blobs["loss"].data)

        return _curve(step, iterations)


def theirs(numbers: str, device: str, iterations: int) -> list[float]:
    """Return PyTorch's losses: channels last, in bf16 under autocast."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    with closing(solver("float32", "cpu")) as made:
        model = TorchNet(made.net).to(device, memory_format=torch.channels_last)
    optimiser = torch.optim.SGD(model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY)

    def step(x: np.ndarray, y: np.ndarray) -> float:
        optimiser.zero_grad()
        images = torch.from_numpy(x).to(device).contiguous(memory_format=torch.channels_last)
        with torch.autocast(device, torch.bfloat16) if numbers == "bf16" else nullcontext():
            loss = model(data=images, label=torch.from_numpy(y).to(device))
        loss.backward()
        optimiser.step()
        return float(loss.item())

    return _curve(step, iterations)


def _curve(step: Callable[[np.ndarray, np.ndarray], float], iterations: int) -> list[float]:
    return [step(*batch) for batch in batches(iterations)]


def tenths(losses: list[float]) -> np.ndarray:
    """Return the mean losses of each tenth of a curve."""
    return np.array(losses).reshape(10, -1).mean(axis=1)


def main() -> int:
    """Print the curves; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--iterations", type=int, default=300, help="a multiple of 10 (default: %(default)s)")
    a = parser.parse_args()
    open_world()
    log.setLevel("WARNING")
    curves: dict[str, np.ndarray] = {}
    for name, train in (("scaffe", ours), ("PyTorch", theirs)):
        for numbers in ("float32", "bf16"):
            try:
                curves[f"{name} {numbers}"] = tenths(train(numbers, a.device, a.iterations))
            except EngineError as error:
                print(f"not measured: {name} {numbers}, {error}")
                continue
            print(f"{name:8} {numbers:8}", *(f"{mean:.3f}" for mean in curves[f"{name} {numbers}"]), flush=True)
    pairs = ("scaffe bf16", "scaffe float32"), ("scaffe float32", "PyTorch float32"), ("scaffe bf16", "PyTorch bf16")
    apart = {
        f"{one} from {other}": float((np.abs(curves[one] - curves[other]) / curves[other]).max())
        for one, other in pairs
        if one in curves and other in curves
    }
    last = float(curves["scaffe float32"][-1])
    print(f"losses end at {last:.3f};", "; ".join(f"{name} {far:.1%} apart" for name, far in apart.items()))
    return int(a.iterations >= ENOUGH and (max(apart.values()) > APART or last > LEARNT))


if __name__ == "__main__":
    sys.exit(main())
