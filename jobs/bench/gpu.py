"""Images per second of scaffe and of PyTorch on one GPU, over the same nets of the model zoo.

    python jobs/bench/gpu.py [--nets alexnet,lenet] [--compute tf32] [--no-compile] [--layers 5] [--rehearse]

An iteration is forward, backward and update by SGD with momentum and weight decay, on random images in the GPU's
memory; dropout is on. PyTorch's nets are built from the same prototxt and compute the same loss from the same weights:
eager in both memory formats, with cudnn.benchmark and the fused update, and compiled in the faster of these; small nets
are compiled to CUDA graphs. What does not compile within --compile-seconds is not measured.
In a round each has a turn of 0.2 s, between two synchronizations of the device. Columns:

- median images per second of scaffe, of PyTorch's faster eager format, and of its compiled form,
- scaffe's ratio to each, with the 10th and 90th percentile over the rounds,
- MiB on the device that iterations of scaffe, and of PyTorch's eager form, need at most, once plans are chosen.

--layers N adds a line with the N slowest passes of scaffe's layers, in ms. --rehearse runs small batches on the CPU.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch_net import TorchNet, batch

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.devices import gpu
from scaffe.errors import EngineError
from scaffe.monitor.log import log
from scaffe.monitor.watching import Watching
from scaffe.parallel.world import open_world
from scaffe.proto import NetParameter, SolverParameter

NETS = {"alexnet": 256, "googlenet": 128, "resnet50": 64, "vgg16": 64, "cifar10_quick": 128, "lenet": 64}
SMALL = "cifar10_quick", "lenet"  # launches bound their iterations, so that CUDA graphs are faster
COMPUTE = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}  # with the relative tolerance of PyTorch's loss
RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4
ROUND = 0.2  # seconds of a turn
NOT_THERE = 5  # exit code where the device can't compute so


@dataclass
class Rival:
    """A form of the net that is timed: `run` does so many iterations; `mebibytes` is its peak on the device."""

    name: str
    run: Callable[[int], object]
    layout: torch.memory_format = torch.contiguous_format
    mebibytes: float = 0
    speeds: list[float] = field(default_factory=list)  # images per second, one for each round


class Machine:
    """The device of both: the GPU, or the CPU for a rehearsal."""

    def __init__(self, rehearse: bool, compute: str, plan_seconds: float):
        self.rehearse, self.compute, self.plan_seconds = rehearse, compute, plan_seconds
        self.gpu = None if rehearse else gpu.choose("cuda")
        self.torch = torch.device("cpu" if self.gpu is None else f"cuda:{self.gpu.number}")
        torch.backends.cudnn.benchmark = True
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = compute != "float32"

    def wait(self) -> None:
        """Synchronize the device."""
        if self.gpu is not None:
            self.gpu.xp.cuda.Device(self.gpu.number).synchronize()

    def casting(self) -> AbstractContextManager:
        """Return the context of PyTorch's forward pass: autocast for bf16."""
        return torch.autocast(self.torch.type, torch.bfloat16) if self.compute == "bf16" else nullcontext()

    def clear(self) -> None:
        """Free the device memory of earlier nets."""
        gc.collect()
        if self.gpu is not None:
            self.gpu.xp.get_default_memory_pool().free_all_blocks()
            torch.cuda.empty_cache()

    def held(self, ours: bool) -> float:
        """Return the MiB of scaffe's pool, or PyTorch's peak since `forget`."""
        if self.gpu is None:
            return 0
        nbytes = self.gpu.xp.get_default_memory_pool().total_bytes() if ours else torch.cuda.max_memory_allocated()
        return nbytes / 2**20

    def forget(self) -> float:
        """Reset PyTorch's peak; return the MiB that it has allocated."""
        if self.gpu is None:
            return 0
        torch.cuda.reset_peak_memory_stats()
        return torch.cuda.memory_allocated() / 2**20


def solver(name: str, images: int, machine: Machine) -> scaffe.Solver:
    """Return scaffe's solver of a net over random images."""
    param = SolverParameter(type="SGD", base_lr=RATE, lr_policy="fixed", momentum=MOMENTUM, weight_decay=DECAY)
    param.net_param.CopyFrom(models.get(name).train_val(batch=images, data="input"))
    param.max_iter, param.random_seed, param.snapshot_after_train = 10**9, 1, False
    world = open_world()
    world.take_gpu(machine.gpu)
    compute = Compute(numbers=machine.compute, plan_seconds=machine.plan_seconds)
    made = scaffe.Solver(param, world=world, compute=compute, watching=Watching(stall_seconds=0))
    fill(made.net)
    return made


def fill(net: scaffe.Net) -> None:
    """Fill a net with random images and labels."""
    rng = np.random.default_rng(0)
    net.blobs["data"].data[...] = rng.standard_normal(net.blobs["data"].shape, np.float32)
    net.blobs["label"].data[...] = rng.integers(0, 10, net.blobs["label"].shape)


def theirs(net: scaffe.Net, machine: Machine, layout: torch.memory_format, mode: str | None) -> Callable[[int], None]:
    """Return PyTorch's iterations on the same net, compiled with `mode`, or eager where it is None."""
    x, y = (each.to(machine.torch) for each in batch(net))
    model, x = TorchNet(net).to(machine.torch, memory_format=layout), x.contiguous(memory_format=layout)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=machine.gpu is not None
    )
    forward = model if mode is None else torch.compile(model, mode=mode)

    def run(iterations: int) -> None:
        for _ in range(iterations):
            optimiser.zero_grad()
            with machine.casting():
                loss = forward(data=x, label=y)
            loss.backward()
            optimiser.step()

    return run


def rivals(name: str, made: scaffe.Solver, machine: Machine, compile_seconds: float) -> Iterator[Rival]:
    """Yield scaffe and the forms of PyTorch's net, each ready to be timed."""
    yield _ready("scaffe", lambda: made.step, machine)
    eager = []
    for layout in (torch.contiguous_format, torch.channels_last):
        how = f"eager{' channels_last' if layout == torch.channels_last else ''}"
        eager.append(_ready(how, partial(theirs, made.net, machine, layout, None), machine, layout))
        yield eager[-1]
    if not compile_seconds:
        return
    mode = "reduce-overhead" if name in SMALL and machine.gpu is not None else "default"
    layout = min(eager, key=lambda rival: seconds(rival, 5, machine)).layout
    try:
        with limited(compile_seconds):
            compiled = _ready(mode, partial(theirs, made.net, machine, layout, mode), machine, layout)
    except Exception as error:  # the compiler raises many kinds
        print(f"{name}: PyTorch, {mode}, can't be measured: {str(error).strip().splitlines()[0]}", flush=True)
    else:
        yield compiled


@contextmanager
def limited(limit: float) -> Iterator[None]:
    """End a block with TimeoutError after so many seconds."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"not ready after {limit:.0f} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _ready(
    name: str,
    make: Callable[[], Callable[[int], object]],
    machine: Machine,
    layout: torch.memory_format = torch.contiguous_format,
) -> Rival:
    """Return a rival after its first iterations, which compile, time kernels and allocate memory; then its peak."""
    before, ours = machine.forget(), name == "scaffe"
    rival = Rival(name, make(), layout)
    rival.run(4)
    machine.wait()
    machine.clear()
    machine.forget()
    rival.run(4)
    machine.wait()
    rival.mebibytes = machine.held(ours) - (0 if ours else before)
    return rival


def seconds(rival: Rival, iterations: int, machine: Machine) -> float:
    """Return the seconds of so many iterations."""
    machine.wait()
    start = time.perf_counter()
    rival.run(iterations)
    machine.wait()
    return time.perf_counter() - start


def measure(found: list[Rival], images: int, rounds: int, machine: Machine) -> None:
    """Time the rivals in turn for `rounds` rounds."""
    least = 1 if machine.rehearse else 3
    counts = [max(least, int(ROUND / seconds(rival, least, machine) * least)) for rival in found]
    for _ in range(rounds):
        for rival, count in zip(found, counts, strict=True):
            rival.speeds.append(images * count / seconds(rival, count, machine))


def check(name: str, machine: Machine) -> None:
    """Raise SystemExit unless both nets have the same loss, from the same weights, without dropout."""
    param = models.get(name).train_val(batch=2, data="input")
    for layer in param.layer:
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
    net = scaffe.Net(NetParameter.FromString(param.SerializeToString()), scaffe.TRAIN, gpu=machine.gpu,
                     compute=Compute(numbers=machine.compute, plan="fixed"))  # fmt: skip
    fill(net)
    model, (x, y) = TorchNet(net).to(machine.torch), batch(net)
    with machine.casting():
        loss = model(data=x.to(machine.torch), label=y.to(machine.torch)).item()
    net.forward()
    if abs(net.loss() - loss) > COMPUTE[machine.compute] * abs(loss):
        raise SystemExit(f"{name}: the loss is {net.loss():.6g} here and {loss:.6g} in PyTorch; expected the same net")


def line(name: str, images: int, compute: str, found: list[Rival]) -> str:
    """Return a net's line of the table."""
    ours, others = found[0], found[1:]
    text = f"{name:13} {compute:7} {images:4} {np.median(ours.speeds):9.0f}"
    for group in ([r for r in others if r.name.startswith("eager")], [r for r in others if "eager" not in r.name]):
        if not group:
            text += f" {'-':>9} {'':24}"
            continue
        best = max(group, key=lambda rival: np.median(rival.speeds))
        low, middle, high = np.percentile(np.array(ours.speeds) / np.array(best.speeds), (10, 50, 90))
        text += f" {np.median(best.speeds):9.0f} x{middle:5.2f} ({low:.2f} to {high:.2f})"
    memory = min((rival.mebibytes for rival in others if rival.name.startswith("eager")), default=0)
    return f"{text} {ours.mebibytes:7.0f} {memory:7.0f}"


def slowest(net: scaffe.Net, count: int) -> str:
    """Return the passes of layers that take longest on the device, with their ms."""
    taken, layers = [], range(len(net.layers))
    for work, order, what in (
        (net.forward_layer, layers, "forward"),
        (net.backward_layer, reversed(layers), "backward"),
    ):
        for i in order:
            run = partial(work, i)
            run()
            taken.append((min(net.engine.elapsed(run) for _ in range(3)) * 1e3, f"{net.layers[i].name} {what}"))
    taken.sort(reverse=True)
    return f"  {sum(ms for ms, _ in taken):.2f} ms: " + ", ".join(f"{name} {ms:.3f}" for ms, name in taken[:count])


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default=",".join(NETS), help="default: all of %(default)s")
    parser.add_argument("--compute", default="float32", choices=COMPUTE)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-compile", action="store_true", help="without torch.compile, which takes long")
    parser.add_argument(
        "--compile-seconds", type=float, default=60, help="limit of a compilation (default: %(default)s)"
    )
    parser.add_argument("--plan-seconds", type=float, default=10, help="for timing plans (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=0, metavar="N", help="print the N slowest passes of layers")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, batches of 2, one round")
    a = parser.parse_args()
    names = a.nets.split(",")
    if unknown := [name for name in names if name not in NETS]:
        parser.error(f"unknown nets {' '.join(unknown)}; known: {' '.join(NETS)}")
    machine = Machine(a.rehearse, a.compute, a.plan_seconds)
    open_world()
    log.setLevel("WARNING")  # not the nets' shapes
    print(f"{machine.gpu or 'the CPU'}, PyTorch {torch.__version__}")
    print(
        "net           numbers batch    img/s     eager x ratio                 compiled x ratio             MiB, its"
    )
    for name in names:
        images = 2 if a.rehearse else NETS[name]
        try:
            check(name, machine)
        except EngineError as error:
            print(f"no --compute {a.compute} here: {error}")
            return NOT_THERE
        machine.clear()
        with closing(solver(name, images, machine)) as made:
            found = [*rivals(name, made, machine, 0 if a.no_compile else a.compile_seconds)]
            measure(found, images, 1 if a.rehearse else a.rounds, machine)
            print(line(name, images, a.compute, found), flush=True)
            if a.layers and not a.rehearse:
                print(slowest(made.net, a.layers), flush=True)
        del made, found
    return 0


if __name__ == "__main__":
    sys.exit(main())
