"""Images per second of scaffe and of PyTorch on one GPU, over the same nets of the model zoo.

    python jobs/bench/gpu.py [--nets alexnet,lenet] [--compute tf32] [--forms eager,graphs] [--layers 5] [--rehearse]

An iteration is forward, backward and update by SGD with momentum and weight decay, on random images in the GPU's
memory; dropout is on. PyTorch's nets are built from the same prototxt and compute the same loss from the same weights,
with cudnn.benchmark and the fused update, in these forms:

- eager: channels last, under autocast for bf16; in float32 and tf32 the faster of both memory formats,
- graphs: the eager iteration, recorded once as one CUDA graph,
- compiled, compiled_graphs, autotuned: torch.compile in the modes default, reduce-overhead (with CUDA graphs) and
  max-autotune-no-cudagraphs. What is not ready within --compile-seconds is not measured.

Each form is measured by itself, in rounds: in a round scaffe and the form have a turn of 0.2 s each, between two
synchronizations of the device. A line is printed after each form: median images per second of scaffe, and of each form
with scaffe's ratio to it (the 10th and 90th percentile over the rounds); the ratio to the fastest form; MiB on the
device that iterations of scaffe, and of each form, need at most, once plans are chosen.

--layers N adds a line with the N slowest passes of scaffe's layers, in ms. --rehearse runs small batches on the CPU.
"""

from __future__ import annotations

import argparse
import gc
import signal
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from torch_net import TorchNet, batch

import scaffe
from scaffe import engines, models
from scaffe.compute import Compute
from scaffe.devices import gpu
from scaffe.errors import EngineError
from scaffe.monitor.log import log
from scaffe.monitor.watching import Watching
from scaffe.parallel.world import open_world
from scaffe.proto import NetParameter, SolverParameter

NETS = {"alexnet": 256, "googlenet": 128, "resnet50": 64, "vgg16": 64, "cifar10_quick": 128, "lenet": 64}
MODES = {"compiled": "default", "compiled_graphs": "reduce-overhead", "autotuned": "max-autotune-no-cudagraphs"}
FORMS = "eager", "graphs", *MODES
FIRST, LAST = torch.contiguous_format, torch.channels_last
COMPUTE = {"float32": 1e-3, "tf32": 1e-2, "bf16": 5e-2}  # with the relative tolerance of PyTorch's loss
RATE, MOMENTUM, DECAY = 1e-6, 0.9, 5e-4
ROUND = 0.2  # seconds of a turn
NOT_THERE = 5  # exit code where the device can't compute so


@dataclass
class Rival:
    """A form of the net that is timed: `run` does so many iterations; `mebibytes` is its peak on the device."""

    name: str
    run: Callable[[int], object]
    mebibytes: float = 0


@dataclass
class Measured:
    """Images per second of scaffe and of a form of PyTorch's net, one for each round."""

    form: str
    mebibytes: float
    ours: list[float] = field(default_factory=list)
    theirs: list[float] = field(default_factory=list)

    @property
    def ratio(self) -> float:
        """Scaffe's ratio to the form, the median of the rounds."""
        return float(np.median(np.array(self.ours) / np.array(self.theirs)))

    def __str__(self) -> str:
        low, middle, high = np.percentile(np.array(self.ours) / np.array(self.theirs), (10, 50, 90))
        return f"{self.form} {np.median(self.theirs):.0f} x{middle:.2f} ({low:.2f} to {high:.2f})"


class Machine:
    """The device of both: the GPU, or the CPU for a rehearsal."""

    def __init__(self, rehearse: bool, compute: str, plan_seconds: float):
        self.rehearse, self.compute, self.plan_seconds = rehearse, compute, plan_seconds
        self.gpu = None if rehearse else gpu.choose("cuda")
        self.layout = FIRST if compute == "float32" else LAST  # of what is not measured in both
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


def theirs(
    net: scaffe.Net, machine: Machine, layout: torch.memory_format, form: str = "eager"
) -> Callable[[int], None]:
    """Return PyTorch's iterations on the same net, in one of FORMS."""
    x, y = (each.to(machine.torch) for each in batch(net))
    model, x = TorchNet(net).to(machine.torch, memory_format=layout), x.contiguous(memory_format=layout)
    optimiser = torch.optim.SGD(
        model.parameters(), lr=RATE, momentum=MOMENTUM, weight_decay=DECAY, fused=machine.gpu is not None
    )
    forward = torch.compile(model, mode=MODES[form]) if form in MODES else model

    def run(iterations: int) -> None:
        for _ in range(iterations):
            optimiser.zero_grad()
            with machine.casting():
                loss = forward(data=x, label=y)
            loss.backward()
            optimiser.step()

    return recorded(run) if form == "graphs" and machine.gpu is not None else run


def recorded(run: Callable[[int], None]) -> Callable[[int], None]:
    """Return iterations that replay one, recorded as a CUDA graph."""
    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run(4)
    torch.cuda.current_stream().wait_stream(stream)
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="thread_local"):
        run(1)

    def replay(iterations: int, held: object = run) -> None:  # the net and its data, which the graph reads and writes
        for _ in range(iterations):
            graph.replay()

    return replay


def rivals(made: scaffe.Solver, machine: Machine, forms: Sequence[str], compile_seconds: float) -> Iterator[Rival]:
    """Yield the forms of PyTorch's net, each ready to be timed; say of others why they are not."""
    for form in forms:
        for layout in (FIRST, LAST) if form == "eager" and machine.compute != "bf16" else (machine.layout,):
            rival, name = None, f"{form}{' first' if layout == FIRST else ''}"
            try:
                with limited(compile_seconds if form in MODES else 0):
                    rival = ready(name, partial(theirs, made.net, machine, layout, form), machine)
            except Exception as error:  # the compiler raises many kinds
                print(f"not measured: {name}, {str(error).strip().splitlines()[0]}", flush=True)
            if rival is not None:
                yield rival
            del rival
            torch.compiler.reset()
            machine.clear()


@contextmanager
def limited(limit: float) -> Iterator[None]:
    """End a block with TimeoutError after so many seconds; 0 is no limit."""

    def end(number: int, frame: object) -> None:
        raise TimeoutError(f"not ready after {limit:.0f} s")

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, limit)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)


def ready(name: str, make: Callable[[], Callable[[int], object]], machine: Machine) -> Rival:
    """Return a rival after its first iterations, which compile, time kernels and allocate memory; then its peak."""
    before, ours = machine.forget(), name == "scaffe"
    rival = Rival(name, make())
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


def measure(ours: Rival, rival: Rival, images: int, rounds: int, machine: Machine) -> Measured:
    """Time scaffe and a rival in turn for `rounds` rounds."""
    least = 1 if machine.rehearse else 3
    counts = [max(least, int(ROUND / seconds(each, least, machine) * least)) for each in (ours, rival)]
    measured = Measured(rival.name, rival.mebibytes)
    for _ in range(rounds):
        measured.ours.append(images * counts[0] / seconds(ours, counts[0], machine))
        measured.theirs.append(images * counts[1] / seconds(rival, counts[1], machine))
    return measured


def check(name: str, machine: Machine) -> None:
    """Raise SystemExit unless both nets have the same loss, from the same weights, without dropout."""
    param = models.get(name).train_val(batch=2, data="input")
    for layer in param.layer:
        if layer.type == "Dropout":
            layer.dropout_param.dropout_ratio = 0
    net = scaffe.Net(NetParameter.FromString(param.SerializeToString()), scaffe.TRAIN,
                     engine=engines.create(Compute(numbers=machine.compute, plan="fixed"), machine.gpu))  # fmt: skip
    fill(net)
    model, (x, y) = TorchNet(net).to(machine.torch), batch(net)
    with machine.casting():
        loss = model(data=x.to(machine.torch), label=y.to(machine.torch)).item()
    net.forward()
    if abs(net.loss() - loss) > COMPUTE[machine.compute] * abs(loss):
        raise SystemExit(f"{name}: the loss is {net.loss():.6g} here and {loss:.6g} in PyTorch; expected the same net")


def line(name: str, images: int, compute: str, ours: Rival, found: list[Measured]) -> str:
    """Return a net's line of the table."""
    speed = np.median([one for measured in found for one in measured.ours])
    forms = "; ".join(map(str, found))
    best = min(measured.ratio for measured in found)
    mebibytes = " ".join(f"{one.form} {one.mebibytes:.0f}" for one in found)
    memory = f"MiB {ours.mebibytes:.0f}, {mebibytes}"
    return f"{name} {compute} {images}: {speed:.0f} img/s; {forms}; best x{best:.2f}; {memory}"


def compare(
    name: str, machine: Machine, forms: Sequence[str], rounds: int, compile_seconds: float, layers: int
) -> list[Measured]:
    """Measure a net against forms of PyTorch's, print its line after each, and the slowest passes of layers."""
    images, found = 2 if machine.rehearse else NETS[name], []
    with closing(solver(name, images, machine)) as made:
        ours = ready("scaffe", lambda: made.step, machine)
        for rival in rivals(made, machine, forms, compile_seconds):
            found.append(measure(ours, rival, images, 1 if machine.rehearse else rounds, machine))
            del rival  # and its memory
            print(line(name, images, machine.compute, ours, found), flush=True)
        if layers and not machine.rehearse:
            print(slowest(made.net, layers), flush=True)
    return found


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
    parser.add_argument("--forms", default="eager,graphs", help=f"of {', '.join(FORMS)} (default: %(default)s)")
    parser.add_argument(
        "--compile-seconds", type=float, default=150, help="limit of a compilation (default: %(default)s)"
    )
    parser.add_argument("--plan-seconds", type=float, default=30, help="for timing plans (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=0, metavar="N", help="print the N slowest passes of layers")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, batches of 2, one round")
    a = parser.parse_args()
    names, forms = a.nets.split(","), a.forms.split(",")
    for given, known in ((names, NETS), (forms, FORMS)):
        if unknown := [name for name in given if name not in known]:
            parser.error(f"unknown {' '.join(unknown)}; known: {' '.join(known)}")
    machine = Machine(a.rehearse, a.compute, a.plan_seconds)
    open_world()
    log.setLevel("WARNING")  # not the nets' shapes
    print(f"{machine.gpu or 'the CPU'}, PyTorch {torch.__version__}", flush=True)
    for name in names:
        try:
            check(name, machine)
        except EngineError as error:
            print(f"no --compute {a.compute} here: {error}")
            return NOT_THERE
        machine.clear()
        if not compare(name, machine, forms, a.rounds, a.compile_seconds, a.layers):
            print(f"{name}: none of {a.forms} can be measured")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
