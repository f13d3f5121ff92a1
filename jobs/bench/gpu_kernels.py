"""The kernels that an iteration of scaffe, and of PyTorch, spends its time in on a GPU.

    python jobs/bench/gpu_kernels.py [--nets alexnet] [--compute bf16] [--most 40] [--rehearse]

The nets and rivals are those of gpu.py; PyTorch's profiler sees the kernels of both. A line for each kernel: ms in an
iteration, launches in an iteration, its name. The first line of a rival is its sum, and the ms on the wall. The
last line has the sums of both.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from contextlib import closing

import gpu as bench
import torch
from torch.profiler import ProfilerActivity, profile

from scaffe.monitor.log import log
from scaffe.parallel.world import open_world

ITERATIONS = 5


def kernels(rival: bench.Rival, machine: bench.Machine) -> dict[str, list[float]]:
    """Return the ms and the launches in an iteration by kernel, the slowest first."""
    rival.run(2)
    machine.wait()
    what = ProfilerActivity.CPU if machine.gpu is None else ProfilerActivity.CUDA
    with profile(activities=[what]) as seen:
        rival.run(ITERATIONS)
        machine.wait()
    found: dict[str, list[float]] = defaultdict(lambda: [0.0, 0.0])
    for event in seen.events():
        if machine.gpu is None or event.device_type == torch.autograd.DeviceType.CUDA:
            taken = event.time_range.elapsed_us() / 1e3 / ITERATIONS
            found[event.name][0] += taken
            found[event.name][1] += 1 / ITERATIONS
    return dict(sorted(found.items(), key=lambda one: -one[1][0]))


def report(rival: bench.Rival, machine: bench.Machine, most: int) -> str:
    """Print a rival's kernels; return their sum."""
    found = kernels(rival, machine)
    wall = bench.seconds(rival, 10, machine) / 10
    busy, launches = (sum(one[i] for one in found.values()) for i in (0, 1))
    said = f"{rival.name} {busy:.3f} ms of kernels, {launches:.0f} launches, {wall * 1e3:.3f} ms on the wall"
    print(said)
    for name, (ms, count) in list(found.items())[:most]:
        print(f"  {ms:9.4f} {count:7.1f}  {name[:150]}")
    return said


def main() -> int:
    """Print the kernels of each net; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--nets", default="alexnet", help="default: %(default)s")
    parser.add_argument("--compute", default="bf16", choices=bench.COMPUTE)
    parser.add_argument("--most", type=int, default=40, help="kernels that are printed (default: %(default)s)")
    parser.add_argument("--plan-seconds", type=float, default=30, help="for timing plans (default: %(default)s)")
    parser.add_argument("--rehearse", action="store_true", help="on the CPU, batches of 2")
    a = parser.parse_args()
    machine = bench.Machine(a.rehearse, a.compute, a.plan_seconds)
    open_world()
    log.setLevel("WARNING")
    for name in a.nets.split(","):
        images = 2 if a.rehearse else bench.NETS[name]
        with closing(bench.solver(name, images, machine)) as made:
            print(f"{name}, {a.compute}, batch {images}")
            ours = report(bench.Rival("scaffe", made.step), machine, a.most)
            theirs = bench.Rival("eager", bench.theirs(made.net, machine, bench.LAST))
            print(f"{name}, {a.compute}: {ours}; {report(theirs, machine, a.most)}")
        del made, theirs
        machine.clear()
    return 0


if __name__ == "__main__":
    sys.exit(main())
