"""Compute iterations of one net on request; turns.py starts a trainer for each way to train, which then take turns.

    python jobs/bench/trainer.py WAY.json ADDRESS

WAY.json holds the fields of turns.Way. The trainer connects to the Unix socket ADDRESS, says its rank, and answers
requests, each a line of JSON: ["step", 3], ["memory"], ["share", 3]. Several processes are started by mpirun.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from iteration import build, random_images, solver_param, theirs, zoo
from turns import TORCH, TRAIN, Way

from scaffe.parallel.world import launcher_rank


class Trainer:
    """Base class: one process of a way."""

    def __init__(self, way: Way, rank: int):
        self.way, self.rank = way, rank

    def iterate(self, count: int) -> None:
        """Compute so many iterations."""
        raise NotImplementedError

    def barrier(self) -> None:
        """Wait for the way's other processes."""

    def step(self, count: int) -> float:
        """Return the seconds of so many iterations."""
        self.barrier()
        start = time.perf_counter()
        self.iterate(count)
        return time.perf_counter() - start

    def memory(self) -> tuple[float, float]:
        """Return this process's memory (MiB): resident, and its share of pages that several processes map."""
        with open("/proc/self/smaps_rollup") as file:
            fields = dict(line.split(":", 1) for line in file if ":" in line)
        resident, shared = (int(fields[name].split()[0]) / 1024 for name in ("Rss", "Pss"))
        return resident, shared

    def share(self, count: int) -> tuple[float, float, float]:
        """Return the seconds of so many iterations: wall, all threads' on the cores, and those in oneDNN's calls."""
        clock.seconds.clear()
        used, wall = time.process_time(), self.step(count)
        return wall, time.process_time() - used, sum(clock.seconds.values())


class Training(Trainer):
    """Scaffe's iterations by Solver.step."""

    def __init__(self, way: Way, rank: int):
        super().__init__(way, rank)
        from scaffe.parallel.instances.instances import Instances
        from scaffe.training.solver import Solver

        param = solver_param(zoo(way.net, way.batch), way.solver)
        more = way.instances > len(os.sched_getaffinity(0))
        self.solver = Solver(param, instances=Instances(str(way.instances), way.gather, oversubscribe=more))
        while not self.solver.job.auto_instances.is_settled:
            self.solver.step(1)
        for i, net in enumerate(self.solver.nets):
            random_images(net, 1000 * rank + i)

    def barrier(self) -> None:
        """Wait for the other ranks."""
        self.solver.world.comm.Barrier()

    def iterate(self, count: int) -> None:
        """Train."""
        self.solver.step(count)


class Inference(Trainer):
    """Scaffe's forward passes without gradients, the batch divided over the instances."""

    def __init__(self, way: Way, rank: int):
        super().__init__(way, rank)
        from scaffe.parallel.instances.crew import Crew
        from scaffe.parallel.instances.places import place
        from scaffe.parallel.instances.topology import read_topology

        self.crew = Crew(place(str(way.instances), read_topology()))
        self.nets: list[Any] = [None] * way.instances
        self.crew.run(self._build)
        for net in self.nets[1:]:
            net.share_with(self.nets[0])

    def _build(self, instance: int) -> None:
        import scaffe
        from scaffe.compute import Compute

        param = zoo(self.way.net, self.way.batch // self.way.instances)
        net = scaffe.Net(param, scaffe.TEST, compute=Compute(threads=self.way.threads))
        net.keep_data = False
        random_images(net, instance)
        self.nets[instance] = net

    def iterate(self, count: int) -> None:
        """Compute forward passes, all instances at the same time."""
        for _ in range(count):
            self.crew.run(lambda instance: self.nets[instance].forward())


class TorchTraining(Trainer):
    """PyTorch's iterations in its faster memory format, or DDP's in several processes."""

    def __init__(self, way: Way, rank: int):
        super().__init__(way, rank)
        import torch

        torch.set_num_threads(way.threads)
        self.iteration = self._parallel() if way.processes > 1 else self._alone()

    def _alone(self) -> Callable[[], None]:
        from torch_net import TorchNet, batch

        net = build(zoo(self.way.net, self.way.batch), "reference")
        both = [theirs(TorchNet(net), *batch(net), channels_last) for channels_last in (False, True)]
        spent: list[list[float]] = [[], []]
        for turn in range(8):
            start = time.perf_counter()
            both[turn % 2]()
            spent[turn % 2].append(time.perf_counter() - start)
        return both[int(np.argmin([min(times[1:]) for times in spent]))]

    def _parallel(self) -> Callable[[], None]:
        import ddp
        import torch.distributed as dist

        dist.init_process_group(
            "gloo", init_method=f"tcp://127.0.0.1:{ddp.PORT}", rank=self.rank, world_size=self.way.processes
        )
        rows = ddp.steps(argparse.Namespace(net=self.way.net, batch=self.way.batch // self.way.processes))
        return rows[ddp.DDP]

    def barrier(self) -> None:
        """Wait for DDP's other processes."""
        if self.way.processes > 1:
            import torch.distributed as dist

            dist.barrier()

    def iterate(self, count: int) -> None:
        """Train."""
        for _ in range(count):
            self.iteration()


class KernelClock:
    """Seconds on a core within oneDNN's calls, by thread."""

    def __init__(self) -> None:
        self.seconds: dict[int, float] = {}

    def watch(self) -> None:
        """Time all calls of primitives that are made from now on."""
        from scaffe.engines.onednn.library import load

        dll = load().dll
        for name in ("dnnl_primitive_execute", "dnnl_sgemm"):
            setattr(dll, name, self._timed(getattr(dll, name)))

    def _timed(self, call: Any) -> Callable[..., Any]:
        seconds = self.seconds

        def timed(*arguments: Any) -> Any:
            start = time.thread_time()
            status = call(*arguments)
            thread = threading.get_ident()
            seconds[thread] = seconds.get(thread, 0.0) + time.thread_time() - start
            return status

        return timed


clock = KernelClock()


def serve(trainer: Trainer, address: str) -> None:
    """Answer requests until there are no more."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(address)
        lines = connection.makefile("rw")
        print(trainer.rank, file=lines, flush=True)
        for line in lines:
            name, *arguments = json.loads(line)
            print(json.dumps(getattr(trainer, name)(*arguments)), file=lines, flush=True)


def main() -> None:
    """Serve until the socket closes."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("way", metavar="WAY.json")
    parser.add_argument("address", metavar="ADDRESS")
    given = parser.parse_args()
    with open(given.way) as file:
        way = Way(**json.load(file))
    rank = launcher_rank()
    os.sched_setaffinity(0, way.cores_of(rank))
    if way.timed:
        clock.watch()
    kinds = {TRAIN: Training, TORCH: TorchTraining}
    serve(kinds.get(way.kind, Inference)(way, rank), given.address)


if __name__ == "__main__":
    main()
