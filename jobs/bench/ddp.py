"""Samples per second of PyTorch DistributedDataParallel over gloo or scaffe, and the share of its messages it hides.

    mpirun -n P python jobs/bench/ddp.py NET [--backend gloo,scaffe] [--hook none,bf16] [--batch N] [--rounds N] [--pin]
                                         [--interface eth0] [--master nl0]

Backends and hooks take turns in one process, so that they see the same machine. The hook bf16 is PyTorch's own over
gloo, and `collectives.torch.hook` over scaffe. The net is one of scaffe's model zoo in PyTorch (torch_net.py),
channels-last, with one SGD step an iteration. Rows:

- computing alone: without DDP's messages,
- communicating alone: the backend's allreduce of DDP's buckets, 25 MiB each,
- DDP.

NET may also be `sizes`: then the rows are an all_reduce of 4 bytes to 64 MB. The last column is gloo's time over ours.

PyTorch is faster with MALLOC_MMAP_THRESHOLD_=2000000000 and MALLOC_TRIM_THRESHOLD_=2000000000 in the environment.
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable
from functools import partial
from statistics import median

import torch
import torch.distributed as dist
from mpi4py import MPI
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook
from torch.nn.parallel import DistributedDataParallel
from torch_net import TorchNet, batch

import collectives.torch
import scaffe
from scaffe import models
from scaffe.compute import Compute

BUCKET = 25 << 18  # floats, DDP's default
ALONE, TALKING, DDP, HOOKED = "computing alone", "communicating alone", "DDP", ", bf16"
WARM = 3
SIZES, COUNTS = "sizes", (1, 64, 1 << 10, 1 << 12, 1 << 14, 1 << 18, 1 << 24)  # floats


def main() -> None:
    """Measure, and print the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net")
    parser.add_argument("--backend", default="gloo", help="gloo, scaffe or both, with a comma (default: %(default)s)")
    parser.add_argument("--hook", default="none", help="none, bf16 or both, with a comma (default: %(default)s)")
    parser.add_argument("--batch", type=int, default=32, help="samples of each rank (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=2, help="iterations of a round (default: %(default)s)")
    parser.add_argument("--pin", action="store_true", help="bind each rank to a core of its own")
    parser.add_argument("--interface", help="network interface for gloo")
    parser.add_argument("--master", default="127.0.0.1", help="host of rank 0 (default: %(default)s)")
    a = parser.parse_args()
    rank, ranks = MPI.COMM_WORLD.rank, MPI.COMM_WORLD.size
    if a.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if a.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = a.interface
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    os.environ["MASTER_ADDR"] = a.master
    dist.init_process_group("gloo")
    spent = measure(rows(a), a)
    if rank == 0:
        print(table(ranks, a, spent))
    dist.destroy_process_group()


def rows(a: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Return the function of each row, by its name."""
    groups = {
        name: dist.group.WORLD if name == "gloo" else dist.new_group(backend=name) for name in a.backend.split(",")
    }
    if a.net == SIZES:
        buffers = [torch.zeros(count) for count in COUNTS]
        return {
            f"{4 * one.numel()} bytes, {name}": partial(dist.all_reduce, one, group=group)
            for one in buffers
            for name, group in groups.items()
        }
    return steps(a, groups)


def steps(a: argparse.Namespace, groups: dict[str, dist.ProcessGroup]) -> dict[str, Callable[[], None]]:
    """Return the function of each row that runs one iteration."""
    param = models.get(a.net).train_val(batch=a.batch, data="input")
    net = scaffe.Net(param, scaffe.TRAIN, compute=Compute("reference"))
    net.blobs["data"].data[...] = torch.randn(net.blobs["data"].shape).numpy()
    x, y = batch(net)
    x = x.to(memory_format=torch.channels_last)
    model = TorchNet(net).to(memory_format=torch.channels_last)
    buckets = torch.zeros(sum(p.numel() for p in model.parameters())).split(BUCKET)

    def training(module: torch.nn.Module) -> Callable[[], None]:
        optimiser = torch.optim.SGD(module.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4)

        def train() -> None:
            optimiser.zero_grad()
            module(data=x, label=y).backward()
            optimiser.step()

        return train

    def talk(group: dist.ProcessGroup) -> None:
        for work in [dist.all_reduce(bucket, async_op=True, group=group) for bucket in buckets]:
            work.wait()

    found = {ALONE: training(model)}
    for name, group in groups.items():
        found[f"{TALKING}, {name}"] = partial(talk, group)
        for kind in a.hook.split(","):
            parallel = DistributedDataParallel(copy.deepcopy(model), process_group=group)
            if kind == "bf16":
                ours = collectives.torch.hook("bf16")
                parallel.register_comm_hook(group, ours if name == "scaffe" else torch_bf16)
            found[f"{DDP}, {name}{HOOKED * (kind == 'bf16')}"] = training(parallel)
    return found


def torch_bf16(group, bucket):  # PyTorch lets only GPUs take the hook by its own name
    """Compress as PyTorch's bf16 hook does."""
    return bf16_compress_hook(group, bucket)


def measure(rows: dict[str, Callable[[], None]], a: argparse.Namespace) -> dict[str, list[float]]:
    """Return the last rank's ms an iteration for each round. Rows take turns; the first round is not counted.

    That has WARM iterations at least: DistributedDataParallel makes its buckets anew after the first one.
    """
    spent: dict[str, list[float]] = {name: [] for name in rows}
    for k in range(a.rounds + 1):
        for name, step in rows.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(a.iterations if k else max(WARM, a.iterations)):
                step()
            seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
            if k:
                spent[name].append(1e3 * seconds.item() / a.iterations)
    return spent


def table(ranks: int, a: argparse.Namespace, spent: dict[str, list[float]]) -> str:
    """Return the table, with columns of overlap.py."""
    middle = {name: median(each) for name, each in spent.items()}
    what = "all_reduce" if a.net == SIZES else f"{a.net}, batch {a.batch} a rank, channels-last"
    lines = [
        f"{what}, {ranks} ranks, PyTorch {torch.__version__}",
        f"{'':30}{'ms':>9}{'least':>9}{'most':>9}{'samples/s':>11}{'hidden':>8}{'gloo/ours':>11}",
    ]
    for name, each in spent.items():
        line = f"{name:30}{middle[name]:9.3f}{min(each):9.3f}{max(each):9.3f}"
        if name.startswith(DDP):
            talking = middle[f"{TALKING}, {name.removeprefix(DDP + ', ').removesuffix(HOOKED)}"]
            hidden = (middle[ALONE] + talking - middle[name]) / talking
            line += f"{1e3 * ranks * a.batch / middle[name]:11.1f}{hidden:8.0%}"
        if "scaffe" in name and (rival := name.replace("scaffe", "gloo")) in middle:
            line = f"{line:76}{middle[rival] / middle[name]:11.2f}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
