"""Images per second of scaffe and of PyTorch, one after the other, over the same nets of the model zoo.

    OMP_NUM_THREADS=1 python jobs/bench_engine.py [--nets lenet,alexnet] [--rounds 7] [--engine auto] [--memory]

An iteration is forward, backward and update by SGD with momentum and weight decay, float32, on constant random
input. PyTorch's net is made of the same prototxt and must compute the same loss from the same weights. Columns: median
ms and images a second of scaffe; the better of PyTorch's two memory formats; their ratio with its spread over the
rounds; GFLOP/s of scaffe and of a large matrix product; with --memory the peak of each, in a process of its own.
Without PyTorch its columns are empty.
For PyTorch's sake start it with MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=2000000000.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from importlib.util import find_spec

import bench_memory
import numpy as np
from threadpoolctl import threadpool_limits

import scaffe
from scaffe import models, solvers
from scaffe.choices import FIXED
from scaffe.engines import ENGINES
from scaffe.proto import NetParameter, SolverParameter
from scaffe.tools import benchmark

HAS_TORCH = find_spec("torch") is not None
NETS = {"lenet": 64, "cifar10_quick": 100, "alexnet": 32, "caffenet": 32, "googlenet": 16, "resnet50": 8, "vgg16": 4}
RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4


def build(param: NetParameter, engine: str, plan: str = FIXED) -> scaffe.Net:
    """Return the net over random images of class 0."""
    net = scaffe.Net(param, scaffe.TRAIN, engine=engine, plan=plan)
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].shape)
    return net


def ours(net: scaffe.Net) -> Callable[[], None]:
    """Return one iteration of scaffe."""
    fields = {"base_lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    rule = solvers.create(SolverParameter(type="SGD", lr_policy="fixed", **fields), net.packed, net.context.engine)
    everything = range(len(net.packed.parameters))
    net.keep_diffs = False

    def iteration() -> None:
        net.clear_param_diffs()
        net.forward()
        net.backward()
        rule.update(everything, RATE, 0)

    return iteration


def theirs(net: scaffe.Net) -> list[Callable[[], None]]:
    """Return one iteration of PyTorch on the same net, in each memory format."""
    from torch_net import TorchNet, batch, training

    fields = {"lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    return [training(TorchNet(net), *batch(net), channels_last, **fields) for channels_last in (False, True)]


def check(name: str, engine: str) -> None:
    """Raise SystemExit unless PyTorch's net has the loss of ours, from the same weights, without dropout."""
    from torch_net import TorchNet, batch

    param = models.get(name).train_val(batch=2, data="input")
    for layer in param.layer:
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
    net = build(param, engine)
    x, y = batch(net)
    loss = TorchNet(net)(data=x, label=y).item()
    net.forward()
    if abs(net.loss() - loss) > 1e-3 * abs(loss):
        raise SystemExit(f"{name}: the loss is {net.loss():.6g} here and {loss:.6g} in PyTorch; expected the same net")


CLOCKS = {"wall": time.perf_counter, "cpu": time.process_time}  # cpu: where others use the machine too


def seconds(iteration: Callable[[], object], clock: Callable[[], float]) -> float:
    """Return how long one iteration takes."""
    start = clock()
    iteration()
    return clock() - start


def peak(clock: Callable[[], float], size: int = 2048) -> float:
    """Return the GFLOP/s of a large float32 matrix product."""
    a, b = (np.random.default_rng(i).standard_normal((size, size), np.float32) for i in range(2))
    out = np.empty_like(a)
    return max(2e-9 * size**3 / seconds(lambda: np.matmul(a, b, out=out), clock) for _ in range(5))


def bench(name: str, rounds: int, engine: str, plan: str, top: float, clock: Callable[[], float]) -> str:
    """Return a line of the table."""
    batch = NETS[name]
    if HAS_TORCH:
        check(name, engine)
    net = build(models.get(name).train_val(batch=batch, data="input"), engine, plan)
    rivals = [ours(net), *(theirs(net) if HAS_TORCH else [])]
    for rival in rivals * 2:
        rival()
    times = np.array([[seconds(rival, clock) for rival in rivals] for _ in range(rounds)])
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
    parser.add_argument("--nets", default=",".join(NETS), help="of these, which are the default")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--plan", default=FIXED, metavar="fixed|timed|FILE")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine that others use too")
    parser.add_argument("--memory", action="store_true", help="measure each rival's peak memory too")
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
        peaks = bench_memory.peaks(name, NETS[name], arguments.engine, HAS_TORCH) if arguments.memory else []
        print(line, *(f"{size:8.0f}" for size in peaks), flush=True)


def _torch(threads: int) -> str:
    """Give PyTorch so many threads; return what the table's head says of it."""
    if not HAS_TORCH:
        return ", no PyTorch here"
    import torch

    torch.set_num_threads(threads)
    return f", PyTorch {torch.__version__}"


if __name__ == "__main__":
    main()
