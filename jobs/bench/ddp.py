"""Samples per second of PyTorch DistributedDataParallel over gloo, and the share of its messages that it hides.

    mpirun -n P python jobs/bench/ddp.py NET [--batch N] [--rounds N] [--pin] [--interface eth0] [--master nl0]

The ranks come from Open MPI's environment. The net is one of scaffe's model zoo in PyTorch (torch_net.py),
channels-last, with one SGD step an iteration. Rows:

- computing alone: without DDP's messages,
- communicating alone: gloo's allreduce of DDP's buckets, 25 MiB each,
- DDP.

PyTorch is faster with MALLOC_MMAP_THRESHOLD_=2000000000 and MALLOC_TRIM_THRESHOLD_=2000000000 in the environment.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from statistics import median

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_net import TorchNet, batch

import scaffe
from scaffe import models
from scaffe.compute import Compute

BUCKET = 25 << 18  # floats, DDP's default
PORT = 29511
ALONE, TALKING, DDP = "computing alone", "communicating alone", "DDP"


def main() -> None:
    """Measure, and print the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net")
    parser.add_argument("--batch", type=int, default=32, help="samples of each rank (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--iterations", type=int, default=2, help="iterations of a round (default: %(default)s)")
    parser.add_argument("--pin", action="store_true", help="bind each rank to a core of its own")
    parser.add_argument("--interface", help="network interface for gloo")
    parser.add_argument("--master", default="127.0.0.1", help="host of rank 0 (default: %(default)s)")
    a = parser.parse_args()
    rank, ranks = (int(os.environ[f"OMPI_COMM_WORLD_{name}"]) for name in ("RANK", "SIZE"))
    if a.pin:
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(0, {cores[rank % len(cores)]})
    if a.interface:
        os.environ["GLOO_SOCKET_IFNAME"] = a.interface
    torch.set_num_threads(int(os.environ.get("OMP_NUM_THREADS", "1")))
    dist.init_process_group("gloo", init_method=f"tcp://{a.master}:{PORT}", rank=rank, world_size=ranks)
    spent = measure(steps(a), a)
    if rank == 0:
        print(table(ranks, a, spent))
    dist.destroy_process_group()


def steps(a: argparse.Namespace) -> dict[str, Callable[[], None]]:
    """Return the function of each row that runs one iteration."""
    param = models.get(a.net).train_val(batch=a.batch, data="input")
    net = scaffe.Net(param, scaffe.TRAIN, compute=Compute("reference"))
    net.blobs["data"].data[...] = torch.randn(net.blobs["data"].shape).numpy()
    x, y = batch(net)
    x = x.to(memory_format=torch.channels_last)
    model = TorchNet(net).to(memory_format=torch.channels_last)
    parallel = DistributedDataParallel(model)
    optimiser = torch.optim.SGD(model.parameters(), lr=1e-6, momentum=0.9, weight_decay=5e-4)
    buckets = torch.zeros(sum(p.numel() for p in model.parameters())).split(BUCKET)

    def train(module: torch.nn.Module) -> None:
        optimiser.zero_grad()
        module(data=x, label=y).backward()
        optimiser.step()

    def talk() -> None:
        for work in [dist.all_reduce(bucket, async_op=True) for bucket in buckets]:
            work.wait()

    return {ALONE: lambda: train(model), TALKING: talk, DDP: lambda: train(parallel)}


def measure(rows: dict[str, Callable[[], None]], a: argparse.Namespace) -> dict[str, list[float]]:
    """Return the last rank's ms an iteration for each round. Rows take turns; the first round is not counted."""
    spent: dict[str, list[float]] = {name: [] for name in rows}
    for k in range(a.rounds + 1):
        for name, step in rows.items():
            dist.barrier()
            start = time.perf_counter()
            for _ in range(a.iterations):
                step()
            seconds = torch.tensor(time.perf_counter() - start, dtype=torch.float64)
            dist.all_reduce(seconds, dist.ReduceOp.MAX)
            if k:
                spent[name].append(1e3 * seconds.item() / a.iterations)
    return spent


def table(ranks: int, a: argparse.Namespace, spent: dict[str, list[float]]) -> str:
    """Return the table, with columns of overlap.py."""
    middle = {name: median(each) for name, each in spent.items()}
    lines = [
        f"{a.net}, batch {a.batch} a rank, {ranks} ranks, PyTorch {torch.__version__}, gloo, channels-last",
        f"{'':24}{'ms':>9}{'least':>9}{'most':>9}{'samples/s':>11}{'hidden':>8}",
    ]
    for name, each in spent.items():
        line = f"{name:24}{middle[name]:9.1f}{min(each):9.1f}{max(each):9.1f}"
        if name == DDP:
            hidden = (middle[ALONE] + middle[TALKING] - middle[DDP]) / middle[TALKING]
            line += f"{1e3 * ranks * a.batch / middle[DDP]:11.1f}{hidden:8.0%}"
        lines.append(line)
    return "\n".join(lines)


if __name__ == "__main__":
    main()
