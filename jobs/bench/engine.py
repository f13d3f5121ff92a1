"""Images per second of scaffe and of PyTorch on the CPU, over the same nets of the model zoo.

    OMP_NUM_THREADS=1 python jobs/bench/engine.py [--nets lenet,alexnet] [--rounds 7] [--engine auto] [--memory]

An iteration is forward, backward and update by SGD with momentum and weight decay, in float32, on constant random
images. PyTorch's net is built from the same prototxt and must compute the same loss from the same weights. In a round
scaffe and PyTorch take turns. Columns:

- median ms and images per second of scaffe,
- images per second of PyTorch in its faster memory format,
- the ratio of scaffe to PyTorch, with the 10th and 90th percentile over the rounds,
- GFLOP/s of scaffe and of a large matrix product,
- with --memory the peak memory of each, in MiB, measured in a process of its own.

Without PyTorch its columns are empty. PyTorch is faster with MALLOC_MMAP_THRESHOLD_=2000000000 and
MALLOC_TRIM_THRESHOLD_=2000000000 in the environment.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec

import numpy as np
from iteration import build, ours, theirs, zoo
from memory import peaks
from threadpoolctl import threadpool_limits

import scaffe
from scaffe.choices import FIXED
from scaffe.compute import ENGINES
from scaffe.tools import benchmark

HAS_TORCH = find_spec("torch") is not None
NETS = {"lenet": 64, "cifar10_quick": 100, "alexnet": 32, "caffenet": 32, "googlenet": 16, "resnet50": 8, "vgg16": 4}


def check(name: str, engine: str) -> None:
    """Raise SystemExit unless both nets have the same loss, from the same weights, without dropout."""
    from torch_net import TorchNet, batch

    param = zoo(name, 2)
    for layer in param.layer:
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
    net = build(param, engine)
    x, y = batch(net)
    loss = TorchNet(net)(data=x, label=y).item()
    net.forward()
    if abs(net.loss() - loss) > 1e-3 * abs(loss):
        raise SystemExit(f"{name}: the loss is {net.loss():.6g} here and {loss:.6g} in PyTorch; expected the same net")


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # cpu: for a machine with other work


def seconds(iteration: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return the seconds of one iteration."""
    start = clock()
    iteration()
    return clock() - start


def peak(clock: Callable[[], float], size: int = 2048) -> float:
    """Return the GFLOP/s of a large float32 matrix product."""
    a, b = (np.random.default_rng(i).standard_normal((size, size), np.float32) for i in range(2))
    out = np.empty_like(a)
    return max(2e-9 * size**3 / seconds(lambda: np.matmul(a, b, out=out), clock) for _ in range(5))


def torch_iterations(net: scaffe.Net) -> list[Callable[[], None]]:
    """Return one iteration of PyTorch on the same net, in each memory format."""
    from torch_net import TorchNet, batch

    return [theirs(TorchNet(net), *batch(net), channels_last) for channels_last in (False, True)]


def bench(name: str, rounds: int, engine: str, plan: str, top: float, clock: Callable[[], float]) -> str:
    """Return a line of the table."""
    batch = NETS[name]
    if HAS_TORCH:
        check(name, engine)
    net = build(zoo(name, batch), engine, plan)
    iterations = [ours(net), *(torch_iterations(net) if HAS_TORCH else [])]
    for iteration in iterations * 2:
        iteration()
    times = np.array([[seconds(iteration, clock) for iteration in iterations] for _ in range(rounds)])
    mine = float(np.median(times[:, 0]))
    speed = 3e-9 * benchmark.operations(net) / mine
    line = f"{name:14} {batch:5} {mine * 1e3:9.1f} {batch / mine:9.1f}"
    if HAS_TORCH:
        best = times[:, 1:][:, np.argmin(np.median(times[:, 1:], 0))]
        low, middle, high = np.percentile(best / times[:, 0], (10, 50, 90))
        line += f" {batch / float(np.median(best)):9.1f}   {middle:5.2f} ({low:.2f} to {high:.2f})"
    else:
        line += " " * 31
    return f"{line} {speed:8.0f} of {top:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="default: all of %(default)s")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each (default: %(default)s)")
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--plan", default=FIXED, metavar="fixed|timed|FILE")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine with other work")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory too")
    arguments = parser.parse_args()
    names = arguments.nets.split(",")
    if unknown := [name for name in names if name not in NETS]:
        parser.error(f"unknown nets {' '.join(unknown)}; known: {' '.join(NETS)}")
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    threadpool_limits(threads)
    clock = CLOCKS[arguments.clock]
    top = peak(clock)
    print(f"{threads} thread(s), float32{_torch(threads)}")
    memory = "  peak MiB, PyTorch's" if arguments.memory else ""
    print(f"net            batch        ms     img/s   PyTorch   ratio                GFLOP/s   {memory}")
    for name in names:
        line = bench(name, arguments.rounds, arguments.engine, arguments.plan, top, clock)
        sizes = peaks(name, NETS[name], arguments.engine, HAS_TORCH) if arguments.memory else []
        print(line, *(f"{size:8.0f}" for size in sizes), flush=True)


def _torch(threads: int) -> str:
    """Set the number of PyTorch's threads; return its version for the head of the table."""
    if not HAS_TORCH:
        return ", no PyTorch here"
    import torch

    torch.set_num_threads(threads)
    return f", PyTorch {torch.__version__}"


if __name__ == "__main__":
    main()
