"""The share of a GPU's memory bandwidth, which bounds them, that the kernels of engine cuda reach.

    python jobs/bench/kernels.py [--quick] [--only lrn,pool] [--rehearse]

Each kernel runs on shapes of real nets, larger than the GPU's cache, many times between two events. Its bandwidth is
the bytes of its inputs and outputs, each once, divided by the time. It is compared with that of a copy of a large array
in the same run. --rehearse runs each kernel once on the host's stand-in, without timing.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from google.protobuf import text_format

import scaffe
from scaffe import solvers
from scaffe.devices import gpu
from scaffe.packed import PackedParameters
from scaffe.proto import NetParameter, SolverParameter

ASKED = 0.8  # of the bandwidth of a copy; a kernel below it is counted in the last line
COPY = 1 << 30  # bytes of that copy
# Layers over x (N x C x H x W) of AlexNet, GoogLeNet and ResNet-50, with the arrays of the size of x and of y that move
# forward, and backward. Pooling stores an index of 4 bytes for each y. BatchNorm reads x twice, and backward dy too.
LRN = "lrn_param { local_size: 5 alpha: 0.0001 beta: 0.75 }"
POOL = "pooling_param { pool: %s kernel_size: %d stride: %d }"
LAYERS = [
    ("LRN", (256, 96, 55, 55), LRN, (1, 1), (2, 1)),
    ("LRN", (128, 192, 56, 56), LRN, (1, 1), (2, 1)),
    ("Pooling", (256, 96, 55, 55), POOL % ("MAX", 3, 2), (1, 2), (1, 2)),
    ("Pooling", (128, 64, 112, 112), POOL % ("MAX", 3, 2), (1, 2), (1, 2)),
    ("Pooling", (64, 64, 224, 224), POOL % ("MAX", 2, 2), (1, 2), (1, 2)),
    ("Pooling", (256, 96, 55, 55), POOL % ("AVE", 3, 2), (1, 1), (1, 1)),
    ("Pooling", (128, 256, 28, 28), "pooling_param { pool: MAX kernel_size: 3 stride: 1 pad: 1 }", (1, 2), (1, 2)),
    ("BatchNorm", (64, 64, 112, 112), "", (2, 1), (3, 2)),
    ("BatchNorm", (64, 256, 56, 56), "", (2, 1), (3, 2)),
    ("BatchNorm", (256, 2048, 7, 7), "", (2, 1), (3, 2)),
    ("Scale", (64, 256, 56, 56), "scale_param { bias_term: true }", (1, 1), (2, 1)),
    ("Eltwise", (64, 256, 56, 56), "", (2, 1), (0, 0)),
    ("ReLU", (64, 256, 56, 56), "", (1, 1), (2, 1)),
]
# Arrays that move in an update.
RULES = {"SGD": 5, "Nesterov": 6, "AdaGrad": 6, "RMSProp": 6, "AdaDelta": 8, "Adam": 8, "LARS": 7}
PARAMETERS = [(1 << 25) + 16, *[1 << 20] * 24, *[1000] * 60]  # a large layer, some small ones, many biases: 58 million
Case = tuple[str, Callable[[], object], int]
Wanted = Callable[[str], bool]  # whether a kind of layer, "update KIND" or "reduce" is measured


class EventClock:
    """Measures time between events on a stream of its own; a graph of the calls excludes the host's launches."""

    def __init__(self, cuda: Any):
        self.cuda, self.stream = cuda, cuda.Stream(non_blocking=True)

    def __call__(self, work: Callable[[], object], times: int) -> float:
        """Return the device's seconds of a call of `work`: the median of five measurements of so many calls."""
        self.cuda.Device().synchronize()
        with self.stream:
            for _ in range(3):
                work()
            self.stream.synchronize()
            launch = self._repeated(work, times)
            launch()
            return float(np.median([self._seconds(launch) for _ in range(5)])) / times

    def _seconds(self, launch: Callable[[], object]) -> float:
        begin, end = self.cuda.Event(), self.cuda.Event()
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return self.cuda.get_elapsed_time(begin, end) / 1e3

    def _repeated(self, work: Callable[[], object], times: int) -> Callable[[], object]:
        """Return a function that calls `work` so often: a graph's launch, or plain calls if it can't be captured."""

        def calls() -> None:
            for _ in range(times):
                work()

        try:
            self.stream.begin_capture()
            calls()
            return self.stream.end_capture().launch
        except Exception as error:  # CuPy's
            with suppress(Exception):
                self.stream.end_capture()
            print(f"not captured, so the time includes the host's launches: {error}")
            return calls


def layer_net(kind: str, shape: tuple[int, ...], param: str, chosen: Any) -> scaffe.Net:
    """Return a net of one layer over random numbers."""
    names = ("x", "z") if kind == "Eltwise" else ("x",)
    dims = " ".join(f"dim: {size}" for size in shape)
    text = "force_backward: true\n"
    for name in names:
        text += f'layer {{ name: "{name}" type: "Input" top: "{name}" input_param {{ shape {{ {dims} }} }} }}\n'
    bottoms = " ".join(f'bottom: "{name}"' for name in names)
    text += f'layer {{ name: "it" type: "{kind}" {bottoms} top: "y" {param} }}'
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN, gpu=chosen)
    picture = np.random.default_rng(0).standard_normal(shape[1:], np.float32)
    for name in names:
        net.blobs[name].array[...] = chosen.xp.asarray(picture)
    return net


def layers(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield the passes of the layers: a name, a function that runs it, and the bytes that move."""
    for kind, shape, param, forward, backward in LAYERS:
        shape = (2, *(min(size, 9) for size in shape[1:])) if small else shape
        if not wanted(kind):
            continue
        net = layer_net(kind, shape, param, chosen)
        net.forward()
        x, y = net.blobs["x"].array.nbytes, net.blobs["y"].array.nbytes
        pair = partial(net.forward_layer, len(net.layers) - 1), partial(net.backward_layer, len(net.layers) - 1)
        name = f"{kind} {'x'.join(map(str, shape))}"
        yield f"{name} forward", pair[0], forward[0] * x + forward[1] * y
        if any(backward):
            net.blobs["y"].diff_array[...] = net.blobs["y"].array
            yield f"{name} backward", pair[1], backward[0] * x + backward[1] * y


def updates(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield an update of many parameters for each rule."""
    sizes = [min(size, 999) for size in PARAMETERS[-9:]] if small else PARAMETERS
    text = "\n".join(
        f'layer {{ name: "p{i}" type: "Parameter" top: "p{i}" parameter_param {{ shape {{ dim: {size} }} }} }}'
        for i, size in enumerate(sizes)
    )
    net = scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN, gpu=chosen)
    for kind, arrays in ((kind, arrays) for kind, arrays in RULES.items() if wanted(f"update {kind}")):
        rule = _rule(kind, net.packed, net.engine)
        update = partial(rule.update, range(len(sizes)), 1e-6, 0)
        yield f"update by {kind}, {sum(sizes) / 1e6:.0f} million", update, 4 * arrays * sum(sizes)


def _rule(kind: str, packed: PackedParameters, engine: Any) -> Any:
    own = {"AdaGrad": {"momentum": 0}, "RMSProp": {"momentum": 0, "rms_decay": 0.9}}.get(kind, {})
    fields = {"type": kind, "base_lr": 1e-6, "lr_policy": "fixed", "momentum": 0.9, "weight_decay": 5e-4, "delta": 1e-6}
    return solvers.create(SolverParameter(**fields | own), packed, engine)


def reduces(small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield the additions of a reduce, by the kernels of the collectives."""
    from collectives.execution.device.cuda import CudaDevice

    if small or not wanted("reduce"):
        return
    import cupy

    device = CudaDevice(cupy)
    for name, dtype in (("64 MiB", np.float32), ("256 MiB", np.float32), ("256 MiB of halves", np.float16)):
        count = int(name.split()[0]) * (1 << 20) // np.dtype(dtype).itemsize
        arrays = [cupy.zeros(count, dtype) for _ in range(3)]
        yield f"reduce's add, {name}", partial(_add, device, arrays), 3 * arrays[0].nbytes


def _add(device: Any, arrays: list) -> None:
    from collectives.execution.operations import OPERATIONS

    device.join(OPERATIONS["sum"], *arrays, device.current())


def cases(chosen: Any, small: bool, wanted: Wanted) -> Iterator[Case]:
    """Yield all cases that are wanted."""
    yield from layers(chosen, small, wanted)
    yield from updates(chosen, small, wanted)
    yield from reduces(small, wanted)


def copy_bandwidth(cupy: Any, clock: EventClock) -> float:
    """Return the bandwidth of a copy on the device: bytes read and written per second."""
    source, target = cupy.zeros(COPY, np.uint8), cupy.empty(COPY, np.uint8)
    return 2 * COPY / clock(lambda: target.data.copy_from_device_async(source.data, COPY), 10)


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer launches of each")
    parser.add_argument(
        "--only", default="", metavar="A,B", help="parts of names: lrn, pooling, ..., update, adam, ..., reduce"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="small shapes on a machine without a GPU, without timing"
    )
    a = parser.parse_args(argv)
    parts = a.only.lower().split(",")
    if a.rehearse:
        chosen, clock, top = _stand_in(), lambda work, times: work() or np.inf, 1.0
    else:
        chosen = gpu.choose("cuda")
        assert chosen is not None
        clock = EventClock(chosen.xp.cuda)
        top = copy_bandwidth(chosen.xp, clock)
        print(f"{chosen}: a copy moves {top / 1e9:.0f} GB/s")
    found = []
    for name, work, nbytes in cases(chosen, a.rehearse, lambda kind: any(part in kind.lower() for part in parts)):
        seconds = clock(work, 10 if a.quick else 50)
        found.append((nbytes / seconds / top, name))
        print(f"{name:48} {nbytes / 1e6:9.1f} MB {seconds * 1e6:9.1f} us {found[-1][0]:6.2f}", flush=True)
    if a.rehearse:
        print(f"slowest: nothing was timed; {len(found)} kernels ran")
        return 0
    slow = [one for one in found if one[0] < ASKED]
    least, slowest = min(found, default=(0, "nothing"))
    print(f"slowest: {slowest} at {least:.2f} of a copy; {len(slow)} of {len(found)} below {ASKED}")
    return 0


def _stand_in() -> Any:
    """Return the stand-in for a GPU that the tests use; it is in tests/support, on PYTHONPATH."""
    from strict_arrays import StrictGpu

    return StrictGpu()


if __name__ == "__main__":
    sys.exit(main())
