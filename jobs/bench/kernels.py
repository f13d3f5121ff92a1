"""The share of a GPU's memory bandwidth, which bounds them, that the kernels of engine cuda reach.

    python jobs/bench/kernels.py [--quick] [--only lrn,bf16] [--rehearse]

Each kernel runs on shapes of real nets, larger than the GPU's cache, many times between two events (kernel_cases.py).
Its bandwidth is the bytes that it must move divided by the time. It is compared with that of the fastest way to copy
random numbers in the same run, by the same clock: cudaMemcpy, on a stream and in a graph, and kernels of 16 and 64
bytes a thread. --rehearse runs each kernel once on the host's stand-in, without timing.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import numpy as np
from kernel_cases import cases, fill

from scaffe.devices import gpu

ASKED = 0.8  # of the bandwidth of a copy; a kernel below it is counted in the last line
COPY = 1 << 30  # bytes of that copy
WARM_SECONDS = 1.0  # of copies before the first measurement: an idle GPU's clocks are low
COPIES = r"""
struct alignas(16) Bytes { unsigned at[4]; };
template <int MANY> __device__ void copy(const Bytes* from, Bytes* to) {
  long long first = blockIdx.x * 256ll * MANY + threadIdx.x;
  Bytes some[MANY];
#pragma unroll
  for (int k = 0; k < MANY; k++) some[k] = from[first + 256 * k];
#pragma unroll
  for (int k = 0; k < MANY; k++) to[first + 256 * k] = some[k];
}
extern "C" __global__ void copy_16(const Bytes* from, Bytes* to) { copy<1>(from, to); }
extern "C" __global__ void copy_64(const Bytes* from, Bytes* to) { copy<4>(from, to); }
"""


class EventClock:
    """Measures time between events on a stream of its own; a graph of the calls excludes the host's launches."""

    def __init__(self, cuda: Any):
        self.cuda, self.stream = cuda, cuda.Stream(non_blocking=True)

    def __call__(self, work: Callable[[], object], times: int, graph: bool = True) -> float:
        """Return the device's seconds of a call of `work`: the median of five measurements of so many calls."""
        self.cuda.Device().synchronize()
        with self.stream:
            for _ in range(3):
                work()
            self.stream.synchronize()
            launch = self._repeated(work, times, graph)
            launch()
            return float(np.median([self._seconds(launch) for _ in range(5)])) / times

    def _seconds(self, launch: Callable[[], object]) -> float:
        begin, end = self.cuda.Event(), self.cuda.Event()
        begin.record()
        launch()
        end.record()
        end.synchronize()
        return self.cuda.get_elapsed_time(begin, end) / 1e3

    def _repeated(self, work: Callable[[], object], times: int, graph: bool) -> Callable[[], object]:
        """Return a function that calls `work` so often: a graph's launch, or plain calls if it can't be captured."""

        def calls() -> None:
            for _ in range(times):
                work()

        if not graph:
            return calls
        try:
            self.stream.begin_capture()
            calls()
            return self.stream.end_capture().launch
        except Exception as error:  # CuPy's
            with suppress(Exception):
                self.stream.end_capture()
            print(f"not captured, so the time includes the host's launches: {error}")
            return calls


def copies(cupy: Any) -> dict[str, Callable[[], object]]:
    """Return ways to copy COPY bytes on the device, by name; those of cudaMemcpy first."""
    source, target = cupy.empty(COPY // 4, np.float32), cupy.empty(COPY // 4, np.float32)
    fill(source, cupy)
    module = cupy.RawModule(code=COPIES)

    def by_kernel(nbytes: int) -> None:
        module.get_function(f"copy_{nbytes}")((COPY // (256 * nbytes),), (256,), (source, target))

    memcpy = partial(target.data.copy_from_device_async, source.data, COPY)
    return {"memcpy": memcpy, "16 bytes a thread": partial(by_kernel, 16), "64 bytes a thread": partial(by_kernel, 64)}


def copy_bandwidths(cupy: Any, clock: EventClock) -> dict[str, float]:
    """Return the bandwidths of copies on the device: bytes read and written per second."""
    ways = copies(cupy)
    end = time.monotonic() + WARM_SECONDS
    while time.monotonic() < end:
        clock(ways["64 bytes a thread"], 10)
    seconds = {f"{name}{' in a graph' if graph else ''}": clock(work, 10, graph)
               for name, work in ways.items() for graph in (False, True)}  # fmt: skip
    return {name: 2 * COPY / each for name, each in seconds.items()}


def measured_copies(chosen: Any, clock: EventClock) -> float:
    """Print the bandwidths of copies; return the greatest."""
    found = copy_bandwidths(chosen.xp, clock)
    best = max(found, key=lambda name: found[name])
    print(f"{chosen}: a copy moves {found[best] / 1e9:.0f} GB/s ({best});", end=" ")
    print(", ".join(f"{name} {each / 1e9:.0f}" for name, each in found.items()), flush=True)
    return found[best]


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer launches of each")
    parser.add_argument(
        "--only", default="", metavar="A,B", help="parts of names: lrn, pooling, bf16, ..., turn, bias, update, reduce"
    )
    parser.add_argument(
        "--rehearse", action="store_true", help="small shapes on a machine without a GPU, without timing"
    )
    a = parser.parse_args(argv)
    parts = a.only.lower().split(",")
    clock: Callable[[Callable[[], object], int], float]
    if a.rehearse:
        chosen, clock, top = _stand_in(), lambda work, times: work() or np.inf, 1.0
    else:
        chosen = gpu.choose("cuda")
        assert chosen is not None
        clock = EventClock(chosen.xp.cuda)
        top = measured_copies(chosen, clock)
    found = []
    for name, work, nbytes in cases(chosen, a.rehearse, lambda kind: any(part in kind.lower() for part in parts)):
        seconds = clock(work, 10 if a.quick else 50)
        found.append((nbytes / seconds / top, name))
        print(f"{name:64} {nbytes / 1e6:9.1f} MB {seconds * 1e6:9.1f} us {found[-1][0]:6.2f}", flush=True)
    if a.rehearse:
        print(f"slowest: nothing was timed; {len(found)} kernels ran")
        return 0
    print("at the end", end=" ")
    measured_copies(chosen, clock)
    slow = [one for one in found if one[0] < ASKED]
    least, slowest = min(found, default=(0, "nothing"))
    print(
        f"slowest: {slowest} at {least:.2f} of a copy ({top / 1e9:.0f} GB/s); {len(slow)} of {len(found)} below {ASKED}"
    )
    return 0


def _stand_in() -> Any:
    """Return the stand-in for a GPU that the tests use; it is in tests/support/stand_ins, on PYTHONPATH."""
    from cudnn_gpu import gpu_with

    return gpu_with()


if __name__ == "__main__":
    sys.exit(main())
