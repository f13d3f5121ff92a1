"""Images per second of scaffe and of PyTorch, one after the other, over the same nets.

    OMP_NUM_THREADS=1 python jobs/bench_engine.py [--nets lenet,alexnet] [--rounds 7] [--engine auto]

An iteration is forward, backward and update by SGD with momentum and weight decay, float32, on constant random
input. Columns: median ms and images a second of scaffe; the better of PyTorch's two memory formats; their ratio with
its spread over the rounds; GFLOP/s of scaffe and of a large matrix product. Without PyTorch its columns are empty.
For PyTorch's sake start it with MALLOC_MMAP_THRESHOLD_=2000000000 MALLOC_TRIM_THRESHOLD_=2000000000.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
from google.protobuf import text_format
from threadpoolctl import threadpool_limits

import scaffe
from scaffe import benchmark, solvers
from scaffe.engines import ENGINES
from scaffe.proto import NetParameter, SolverParameter

try:
    import torch
except ImportError:
    torch = None  # type: ignore[assignment]

# A net is its picture (channels x height x width), its classes' number by the last `fc`, and its layers:
# conv outputs kernel stride pad group; max and ave kernel stride; fc outputs; relu; lrn; drop.
_HEAD = "fc 4096, relu, drop, fc 4096, relu, drop, fc 1000"
_TAIL = "conv 384 3 1 1 1, relu, conv 384 3 1 1 2, relu, conv 256 3 1 1 2, relu, max 3 2, " + _HEAD
NETS: dict[str, tuple[int, tuple[int, int, int], str]] = {
    "lenet": (64, (1, 28, 28), "conv 20 5 1 0 1, max 2 2, conv 50 5 1 0 1, max 2 2, fc 500, relu, fc 10"),
    "cifar10_quick": (
        100,
        (3, 32, 32),
        "conv 32 5 1 2 1, max 3 2, relu, conv 32 5 1 2 1, relu, ave 3 2, conv 64 5 1 2 1, relu, ave 3 2, fc 64, fc 10",
    ),
    "alexnet": (
        32,
        (3, 227, 227),
        "conv 96 11 4 0 1, relu, lrn, max 3 2, conv 256 5 1 2 2, relu, lrn, max 3 2, " + _TAIL,
    ),
    "caffenet": (
        32,
        (3, 227, 227),
        "conv 96 11 4 0 1, relu, max 3 2, lrn, conv 256 5 1 2 2, relu, max 3 2, lrn, " + _TAIL,
    ),
    "vgg16": (
        4,
        (3, 224, 224),
        ", ".join(f"{', '.join([f'conv {n} 3 1 1 1, relu'] * k)}, max 2 2" for n, k in
                  ((64, 2), (128, 2), (256, 3), (512, 3), (512, 3))) + ", " + _HEAD,
    ),
}  # fmt: skip

RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4


def prototxt(batch: int, picture: tuple[int, int, int], layers: str) -> str:
    """Return the net as Caffe's text."""
    sizes = " ".join(f"dim: {size}" for size in (batch, *picture))
    text = f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {sizes} }} }} }}\n'
    text += f'layer {{ name: "label" type: "Input" top: "label" input_param {{ shape {{ dim: {batch} }} }} }}\n'
    bottom = "data"
    for i, words in enumerate(map(str.split, layers.split(","))):
        kind, numbers = words[0], words[1:]
        name = f"{kind}{i}"
        top = bottom if kind in ("relu", "drop") else name
        text += f'layer {{ name: "{name}" bottom: "{bottom}" top: "{top}" {_fields(kind, numbers)} }}\n'
        bottom = top
    return text + f'layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "{bottom}" bottom: "label" top: "loss" }}\n'


def _fields(kind: str, numbers: list[str]) -> str:
    filler = 'weight_filler { type: "msra" }'
    if kind == "conv":
        names = ("num_output", "kernel_size", "stride", "pad", "group")
        fields = " ".join(f"{name}: {number}" for name, number in zip(names, numbers, strict=True))
        return f'type: "Convolution" convolution_param {{ {fields} {filler} }}'
    if kind in ("max", "ave"):
        return (
            f'type: "Pooling" pooling_param {{ pool: {kind.upper()} kernel_size: {numbers[0]} stride: {numbers[1]} }}'
        )
    if kind == "fc":
        return f'type: "InnerProduct" inner_product_param {{ num_output: {numbers[0]} {filler} }}'
    return {
        "relu": 'type: "ReLU"',
        "drop": 'type: "Dropout"',
        "lrn": 'type: "LRN" lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }',
    }[kind]


def ours(net: scaffe.Net) -> Callable[[], None]:
    """Return one iteration of scaffe."""
    fields = {"base_lr": RATE, "momentum": MOMENTUM, "weight_decay": DECAY}
    rule = solvers.create(SolverParameter(type="SGD", lr_policy="fixed", **fields), net.packed, net.context.engine)
    everything = range(len(net.packed.parameters))

    def iteration() -> None:
        net.clear_param_diffs()
        net.forward()
        net.backward()
        rule.update(everything, RATE, 0)

    return iteration


def theirs(net: scaffe.Net, layers: str, channels_last: bool) -> Callable[[], None]:
    """Return one iteration of PyTorch on the same net, which it builds anew."""
    layout = torch.channels_last if channels_last else torch.contiguous_format
    model = torch.nn.Sequential(*_modules(net, layers)).to(memory_format=layout)
    optimiser = torch.optim.SGD(model.parameters(), RATE, momentum=MOMENTUM, weight_decay=DECAY)
    x = torch.from_numpy(net.blobs["data"].data.copy()).to(memory_format=layout)
    y = torch.from_numpy(net.blobs["label"].data.astype(np.int64))

    def iteration() -> None:
        optimiser.zero_grad()
        torch.nn.functional.cross_entropy(model(x), y).backward()
        optimiser.step()

    return iteration


def _modules(net: scaffe.Net, layers: str) -> list:
    nn, found, flat = torch.nn, [], False
    bottoms = [blobs for layer, blobs in zip(net.layers, net.bottoms, strict=True) if layer.type != "Input"]
    for words, bottom in zip(map(str.split, layers.split(",")), bottoms, strict=False):
        kind, numbers = words[0], [int(word) for word in words[1:]]
        shape = bottom[0].shape
        if kind == "fc" and not flat:
            found.append(nn.Flatten())
            flat = True
        if kind == "conv":
            found.append(nn.Conv2d(shape[1], *numbers[:4], groups=numbers[4]))
        elif kind == "fc":
            found.append(nn.Linear(int(np.prod(shape[1:])), numbers[0]))
        elif kind in ("max", "ave"):
            found.append((nn.MaxPool2d if kind == "max" else nn.AvgPool2d)(*numbers, ceil_mode=True))
        else:
            plain = {"relu": lambda: nn.ReLU(True), "drop": nn.Dropout, "lrn": lambda: nn.LocalResponseNorm(5)}
            found.append(plain[kind]())
    return found


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


def bench(name: str, rounds: int, engine: str, top: float, clock: Callable[[], float]) -> str:
    """Return a line of the table."""
    batch, picture, layers = NETS[name]
    net = scaffe.Net(text_format.Parse(prototxt(batch, picture, layers), NetParameter()), scaffe.TRAIN, engine=engine)
    net.blobs["data"].data[...] = np.random.default_rng(0).standard_normal(net.blobs["data"].shape)
    rivals = [ours(net)] + ([theirs(net, layers, last) for last in (False, True)] if torch else [])
    for rival in rivals * 2:
        rival()
    times = np.array([[seconds(rival, clock) for rival in rivals] for _ in range(rounds)])
    mine = float(np.median(times[:, 0]))
    speed = 3e-9 * benchmark.operations(net) / mine
    line = f"{name:14} {batch:5} {mine * 1e3:9.1f} {batch / mine:9.1f}"
    if torch:
        best = times[:, 1:][:, np.argmin(np.median(times[:, 1:], 0))]
        low, middle, high = np.percentile(best / times[:, 0], (10, 50, 90))
        line += f" {batch / float(np.median(best)):9.1f}   {middle:5.2f} ({low:.2f} to {high:.2f})"
    else:
        line += " " * 31
    return f"{line} {speed:8.0f} of {top:.0f}"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="lenet,cifar10_quick,alexnet,caffenet", help=f"of {','.join(NETS)}")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine that others use too")
    arguments = parser.parse_args()
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    threadpool_limits(threads)
    if torch:
        torch.set_num_threads(threads)
    clock = CLOCKS[arguments.clock]
    top = peak(clock)
    print(f"{threads} thread(s), float32" + (f", PyTorch {torch.__version__}" if torch else ", no PyTorch here"))
    print("net            batch        ms     img/s   PyTorch   ratio                GFLOP/s")
    for name in arguments.nets.split(","):
        print(bench(name, arguments.rounds, arguments.engine, top, clock), flush=True)


if __name__ == "__main__":
    main()
