"""Images per second of scaffe and of PyTorch on the CPU, over the same nets of the model zoo.

    OMP_NUM_THREADS=1 python jobs/bench/engine.py [--nets lenet,alexnet] [--rounds 7] [--compute bf16] [--phase TEST]
        [--memory] [--batch 32] [--engine auto] [--count]

An iteration is forward, backward and update by SGD with momentum and weight decay, on constant random images; with
--phase TEST a forward pass. PyTorch's net is built from the same prototxt and must compute the same loss from the same
weights; it computes bf16 under autocast, and TEST under inference_mode. In a round all take turns, with the core's own
product. The head has the core's rates: GFLOP/s of a large matrix product by oneDNN. Columns:

- median ms and images per second of scaffe,
- with --compute bf16 those of scaffe in float32, and the ratio to it,
- images per second of PyTorch in its faster memory format, and the ratio to it; ratios with the 10th and 90th
  percentile over the rounds,
- the whole iteration's part of the core's rate, all passes of a layer counted like the forward one,
- with --compute bf16 float32's part of its rate, and the memory of blobs over float32's, all values and gradients kept,
- the iteration over the sum of its kernels, the engine's primitives and products; the part of that sum in reorders,
- with --memory the peak memory of each, in MiB, measured in a process of its own; with --rounds 0 nothing else.

Without PyTorch its columns are empty. PyTorch is faster with MALLOC_MMAP_THRESHOLD_=2000000000 and
MALLOC_TRIM_THRESHOLD_=2000000000 in the environment. --count prints each layer's operations and bytes instead, as is
also done where the CPU can't compute bf16.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec

from core_rate import CoreRate, core_rate
from iteration import build, forward, normalise, ours, theirs, theirs_forward, zoo
from iteration_times import CLOCKS, IterationTimes, over_kernels, seconds
from memory import peaks
from threadpoolctl import threadpool_limits

import scaffe
from scaffe.compute import ENGINES
from scaffe.devices.choices import FIXED
from scaffe.engines.onednn import library as lib
from scaffe.errors import OnednnError
from scaffe.tools import benchmark
from scaffe.tools.layer_kernels import blob_bytes
from scaffe.tools.work import layer_works

HAS_TORCH = find_spec("torch") is not None
NETS = {"lenet": 64, "cifar10_quick": 100, "alexnet": 32, "caffenet": 32, "googlenet": 16, "resnet50": 8, "vgg16": 4}
PHASES = {"TRAIN": scaffe.TRAIN, "TEST": scaffe.TEST}
TOLERANCES = {"float32": 1e-3, "bf16": 2e-2}  # of the loss; a bf16 number has 8 bits, and errors add over layers
PYTORCH = "PyTorch"
TRIES = 4  # iterations of PyTorch in each memory format, to find the faster
SHORT, MANY, FEW = 0.1, 9, 3  # seconds of a short iteration; iterations in which kernels are watched, short or not


@dataclass
class Bench:
    """What is measured, and how."""

    numbers: str
    phase: str
    engine: str
    plan: str
    rounds: int
    clock: Callable[[], float]
    memory: bool
    rates: dict[str, CoreRate]  # by number format

    @property
    def kinds(self) -> list[str]:
        """The number formats that scaffe computes in: the one asked for, and float32 beside it."""
        return list(dict.fromkeys((self.numbers, "float32")))

    def line(self, name: str, batch: int) -> str:
        """Return a net's line of the table."""
        peaks_found = [f"{size:6.0f}" for size in self._peaks(name, batch)]
        if not self.rounds:
            return " ".join([f"{name:14} {batch:5}", *peaks_found])
        if HAS_TORCH:
            self._check(name)
        nets = {numbers: self._net(name, batch, numbers) for numbers in self.kinds}
        blobs = {numbers: _kept_bytes(net, self.phase) for numbers, net in nets.items()}
        iterations = {numbers: self._iteration(net) for numbers, net in nets.items()}
        net, passes = nets[self.numbers], 3 if self.phase == "TRAIN" else 1
        times = IterationTimes(iterations | self._torch(net), self.rates, self.rounds, self.clock)
        median = times.median(self.numbers)
        parts = [f"{name:14} {batch:5} {median * 1e3:9.1f} {batch / median:9.1f}"]
        if len(nets) > 1:
            parts.append(f"{batch / times.median('float32'):9.1f} {times.ratio(self.numbers, 'float32'):22}")
        parts.append(_torch_columns(times, self.numbers, batch))
        work = passes * benchmark.operations(net)
        parts += [
            f"{times.fraction(numbers, numbers, work):8.2f}" if numbers in self.rates else " " * 8
            for numbers in self.kinds
        ]
        if len(nets) > 1:
            parts.append(f"{blobs[self.numbers] / blobs['float32']:6.2f}")
        if net.engine.name != "reference":
            ratio, reorders = over_kernels(net, iterations[self.numbers], MANY if median < SHORT else FEW)
            parts.append(f"{ratio:12.2f} {reorders:8.0%} ")
        return " ".join(parts + peaks_found)

    def head(self) -> str:
        """Return the names of the columns."""
        low, beside = self.numbers, len(self.kinds) > 1
        columns = ["net            batch"]
        if self.rounds:
            columns += ["       ms     img/s"] + [f"  float32 {'over float32':22}"] * beside
            columns += [f"  PyTorch {'over PyTorch':22}", " of rate"] + [" float32  blobs"] * beside
            columns += ["over kernels reorders "]
        if self.memory:
            columns.append(f"peak MiB: {f'{low}, float32' if beside else low}{', PyTorch' if HAS_TORCH else ''}")
        return " ".join(columns)

    def _net(self, name: str, batch: int, numbers: str) -> scaffe.Net:
        net = build(zoo(name, batch), self.engine, self.plan, numbers, PHASES[self.phase])
        normalise(net, zoo(name, batch))
        return net

    def _iteration(self, net: scaffe.Net) -> Callable[[], None]:
        return ours(net) if self.phase == "TRAIN" else forward(net)

    def _torch(self, net: scaffe.Net) -> dict[str, Callable[[], None]]:
        """Return an iteration of PyTorch on the same net, in the memory format whose TRIES are faster; of one at once.

        Empty without PyTorch.
        """
        if not HAS_TORCH:
            return {}
        from torch_net import TorchNet, batch

        made = theirs if self.phase == "TRAIN" else theirs_forward
        least: dict[bool, float] = {}
        for channels_last in (False, True):
            iteration = made(TorchNet(net), *batch(net), channels_last, self.numbers)
            least[channels_last] = min(seconds(iteration, self.clock) for _ in range(TRIES))
            del iteration  # its memory serves the next one
        return {PYTORCH: made(TorchNet(net), *batch(net), min(least, key=least.__getitem__), self.numbers)}

    def _check(self, name: str) -> None:
        """Raise SystemExit unless both nets have the same loss, from the same weights, without dropout."""
        import torch
        from torch_net import TorchNet, autocast, batch

        param = zoo(name, 2)
        for layer in param.layer:
            if layer.type == "Dropout":
                layer.dropout_param.dropout_ratio = 0
        net = build(param, self.engine, FIXED, self.numbers, PHASES[self.phase])
        normalise(net, param)
        x, y = batch(net)
        with torch.no_grad(), autocast(self.numbers):
            loss = TorchNet(net).train(self.phase == "TRAIN")(data=x, label=y).item()
        net.forward()
        if abs(net.loss() - loss) > TOLERANCES[self.numbers] * abs(loss):
            raise SystemExit(f"{name}: the loss is {net.loss():.6g} here and {loss:.6g} in PyTorch; the nets differ")

    def _peaks(self, name: str, batch: int) -> list[float]:
        """Return the peak memory in each number format, MiB, and PyTorch's in the one asked for."""
        if not self.memory:
            return []
        found = [
            peaks(name, batch, self.engine, numbers, self.phase, HAS_TORCH and numbers == self.numbers)
            for numbers in self.kinds
        ]
        return [sizes[0] for sizes in found] + found[0][1:]


def _kept_bytes(net: scaffe.Net, phase: str) -> int:
    """Return the bytes of blobs' values, and in training gradients, after a pass in which all are kept.

    The net's inputs have no gradient, which `net.backward()` would show as zeros.
    """
    net.forward()
    if phase == "TRAIN":
        for i in reversed(range(len(net.layers))):
            net.backward_layer(i)
    return blob_bytes(net)


def _torch_columns(times: IterationTimes, numbers: str, batch: int) -> str:
    if not HAS_TORCH:
        return " " * 32
    return f"{batch / times.median(PYTORCH):9.1f} {times.ratio(numbers, PYTORCH):22}"


def counts(name: str, batch: int, phase: str) -> Iterator[str]:
    """Iterate over the lines of each layer's operations and bytes in a pass, which no CPU changes.

    Bytes of blobs, each read or written once, in float32 and in bf16; parameters stay float32.
    """
    yield f"{name}, batch {batch}: MFLOP forward, backward; MB in float32 forward, backward; in bf16"
    net = build(zoo(name, batch), "reference", phase=PHASES[phase])
    for layer, work in layer_works(net).items():
        flops, moved = ([value / 1e6 for value in pair] for pair in (work.flops, work.moved))
        half = [value / 2 for value in moved]
        yield f"{layer:32}" + "".join(f" {value:10.2f}" for value in (*flops, *moved, *half))


def main() -> None:
    """Print the table."""
    a = _arguments()
    threads = int(os.environ.get("OMP_NUM_THREADS", "1"))
    threadpool_limits(threads)
    clock = CLOCKS[a.clock]
    batches = {name: a.batch or NETS[name] for name in a.nets.split(",")}
    try:
        products = {numbers: core_rate(numbers) for numbers in dict.fromkeys((a.compute, "float32"))}
    except OnednnError as error:
        print(error)
        a.count = True
    if a.count:
        for name, batch in batches.items():
            print(*counts(name, batch, a.phase), sep="\n", flush=True)
        return
    rates = {numbers: product for numbers, product in products.items() if product}
    bench = Bench(a.compute, a.phase, a.engine, a.plan, a.rounds, clock, a.memory, rates)
    core = ", ".join(f"{product.best(clock):.0f} GFLOP/s in {numbers}" for numbers, product in rates.items())
    print(f"{threads} thread(s), {a.phase}, {a.compute}; this core: {core or 'no oneDNN'}{_torch_version(threads)}")
    if a.compute == "bf16" and not lib.load().isa & lib.ISA_BF16:
        print("This CPU emulates bf16: the times say nothing; --count prints the operations and bytes of each layer")
    print(bench.head())
    for name, batch in batches.items():
        print(bench.line(name, batch), flush=True)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="default: all of %(default)s")
    parser.add_argument(
        "--rounds", type=int, default=7, help="turns of each (default: %(default)s); 0: none, for --memory"
    )
    parser.add_argument("--batch", type=int, default=0, help="images, in place of each net's own number")
    parser.add_argument("--compute", default="float32", choices=TOLERANCES)
    parser.add_argument("--phase", default="TRAIN", choices=PHASES)
    parser.add_argument("--engine", default="auto", choices=ENGINES)
    parser.add_argument("--plan", default=FIXED, metavar="fixed|timed|FILE")
    parser.add_argument("--clock", default="wall", choices=CLOCKS, help="cpu: for a machine with other work")
    parser.add_argument("--memory", action="store_true", help="measure the peak memory too")
    parser.add_argument("--count", action="store_true", help="print the operations and bytes of each layer alone")
    arguments = parser.parse_args()
    if unknown := [name for name in arguments.nets.split(",") if name not in NETS]:
        parser.error(f"unknown nets {' '.join(unknown)}; known: {' '.join(NETS)}")
    return arguments


def _torch_version(threads: int) -> str:
    """Set the number of PyTorch's threads; return its version for the head of the table."""
    if not HAS_TORCH:
        return "; no PyTorch here"
    import torch

    torch.set_num_threads(threads)
    return f"; PyTorch {torch.__version__}"


if __name__ == "__main__":
    main()
