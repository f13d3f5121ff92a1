"""Milliseconds of an iteration by each workflow, measured and simulated; overlap.sh simulated starts the ranks.

    mpirun -n P python jobs/bench/simulated.py NET [--batch N] [--rate FLOPS] [--runs A,B] [--iterations N]
                                               [--chunk-bytes N] [--out FILE]

Layers take the times of a device of RATE operations a second (replay), so all that the ranks do is to exchange messages
and to add. What the simulation needs is measured here, before the workflows run: the seconds of short and of long
messages in a row between two ranks, and of an addition. Nothing is fitted.

Streams in opposite directions are timed too, which over TCP take turns or do not (docs/simulate.md); no simulation uses
them.

Rows are the means of some iterations in the steady state, on the slowest rank. --out appends a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median
from typing import Any

import numpy as np
from iteration import zoo
from overlap import alone, by_operations
from rank import take_precedence
from steady import make_solver, slowest, steady

from scaffe.parallel.maker import make_workflow
from scaffe.parallel.run import Run
from scaffe.parallel.world import World, open_world
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.training.replay import Replay

RUNS = "SC-B:chain,SC-B:binomial,SC-OB:chain,SC-OBR:chain,SC-OBR:binomial"
SHORTER = 8  # times shorter than a chunk are the short messages that are timed
LATER = (0.0, 0.2, 0.5, 0.7, 1.0, 1.4, 1.8)  # messages after which a stream begins that meets another one
BURST = 8 << 20  # bytes of messages in a row, so that latencies and a link's buffers don't count
REST = 0.05  # seconds before them, in which a link's buffers refill


def main() -> None:
    """Measure and simulate; print the table on rank 0."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("net", help="of the model zoo")
    parser.add_argument("--batch", type=int, default=32, help="samples of each rank (default: %(default)s)")
    parser.add_argument(
        "--rate", type=float, default=5e12, help="operations a second of a device (default: %(default)s)"
    )
    parser.add_argument("--runs", default=RUNS, help="workflow:algorithm, comma separated (default: %(default)s)")
    parser.add_argument(
        "--iterations", type=int, default=3, help="iterations to take the mean of (default: %(default)s)"
    )
    parser.add_argument("--chunk-bytes", type=int, default=512 << 10, help="of a message (default: %(default)s)")
    parser.add_argument("--ranks-per-node", type=int, default=1, help="default: %(default)s")
    parser.add_argument("--out", help="file for a line of JSON")
    a = parser.parse_args()
    take_precedence()
    world = open_world()
    solver = make_solver(world, zoo(a.net, a.batch))
    profile = by_operations(solver.net, a.rate)
    solver.parts.update.replay = Replay(solver.net, profile)
    numbers = links(world, a.chunk_bytes)
    both_ways = streams(world.comm, a.chunk_bytes, a.chunk_bytes / numbers["rate"])
    computing = slowest(world, steady(solver, alone(solver), a.iterations)()).wall
    rows = {}
    for name in a.runs.split(","):
        workflow, algorithm = name.split(":")
        run = Run(workflow, reduce=algorithm, drive="helper", chunk_bytes=a.chunk_bytes)
        made = make_workflow(run, world, solver.parts.collectives, solver.net, solver.parts.update, solver.parts.rule)
        measured = slowest(world, steady(solver, made, a.iterations)()).wall
        if world.is_root:
            cluster = find_cluster("cluster-a").with_(devices=a.ranks_per_node, **numbers)
            profiled = replace(profile, update=0.0)
            found = simulate_iteration(solver.net, world.size, cluster, run, profile=profiled)
            rows[name] = measured, found.seconds
        world.comm.Barrier()
    if world.is_root:
        print(both_ways)
        report(a, world.size, computing, sum(map(sum, profile.layers.values())), numbers, rows)


def links(world: World, chunk: int, row: int = BURST) -> dict[str, float]:
    """Return what is measured of the links, by the names of a described cluster's numbers. Collective.

    `row`: bytes of messages in a row.
    """
    sizes = chunk // SHORTER, chunk
    bursts = [median([burst(world.comm, n, row) for _ in range(5)]) for n in sizes]
    a, b = np.ones(1 << 20, np.float32), np.ones(1 << 20, np.float32)
    adds = median(timed(lambda: np.add(a, b, out=a)) for _ in range(9))
    short, long, add = world.comm.bcast((*bursts, adds), 0)
    # Beside other work a long message can take no longer than a short one: then no latency is seen.
    rate = (sizes[1] - sizes[0]) / (long - short) if long > short else chunk / long
    alpha = max(0.0, long - chunk / rate)
    return {"alpha": alpha, "alpha_in": alpha, "rate": rate, "rate_in": rate, "add": a.nbytes / add}


def burst(comm: Any, nbytes: int, row: int = BURST) -> float:
    """Return the seconds of each of many messages, `row` bytes in all, that go from rank 0 to rank 1 in a row."""
    array, answer, count = np.zeros(nbytes, np.uint8), np.zeros(1, np.uint8), row // nbytes
    comm.Barrier()
    time.sleep(REST)
    start = time.perf_counter()
    if comm.rank == 0:
        for _ in range(count):
            comm.Send(array, 1)
        comm.Recv(answer, 1)
    elif comm.rank == 1:
        for _ in range(count):
            comm.Recv(array, 0)
        comm.Send(answer, 0)
    return (time.perf_counter() - start) / count


def stream(comm: Any, nbytes: int, ways: int, late: float) -> float:
    """Return the bytes a second from rank 0 to rank 1, and with two `ways` of another stream back at the same time.

    Rank 1 begins `late` seconds later. Two sends are in flight and four receives posted, as an execution does.
    """
    array, arrays, count = np.zeros(nbytes, np.uint8), np.empty((4, nbytes), np.uint8), BURST // nbytes
    to_send, to_receive = (count if of < ways else 0 for of in (comm.rank, 1 - comm.rank))
    sends: list[Any] = []
    receives: list[Any] = []
    comm.Barrier()
    start = time.perf_counter()
    while comm.rank == 1 and time.perf_counter() - start < late:
        pass
    posted = sent = 0
    while comm.rank < 2 and (sends or receives or posted < to_receive or sent < to_send):
        if posted < to_receive and len(receives) < len(arrays):
            receives.append(comm.Irecv(arrays[posted % len(arrays)], 1 - comm.rank))
            posted += 1
        if sent < to_send and len(sends) < 2:
            sends.append(comm.Issend(array, 1 - comm.rank))
            sent += 1
        for requests in (sends, receives):
            if requests and requests[0].Test():
                requests.pop(0)
        time.sleep(1e-4)
    comm.Barrier()
    return count * nbytes / (time.perf_counter() - start - late)


def streams(comm: Any, chunk: int, message: float) -> str:
    """Return what streams of chunks reach, one of which takes `message` seconds, in a line. Collective."""
    alone = max(stream(comm, chunk, 1, 0.0) for _ in range(3))
    both = sorted(stream(comm, chunk, 2, late * message) for late in LATER for _ in range(2))
    rates = f"{alone / 1e6:.1f} MB/s alone, {both[0] / 1e6:.1f} to {both[-1] / 1e6:.1f} while another comes back"
    return f"streams: {rates}, by the moment at which that begins"


def timed(work: Callable[[], object]) -> float:
    """Return the seconds of a call."""
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def report(
    a: argparse.Namespace,
    ranks: int,
    computing: float,
    nominal: float,
    numbers: dict[str, float],
    rows: dict[str, tuple[float, float]],
) -> None:
    """Print the table, and append it to a file."""
    print(f"{a.net}, batch {a.batch} a rank, {ranks} ranks; " + ", ".join(f"{k} {v:.4g}" for k, v in numbers.items()))
    print(f"computing alone: {1e3 * computing:.1f} ms, by the profile {1e3 * nominal:.1f}")
    for name, (measured, simulated) in rows.items():
        print(f"{name:18}{1e3 * measured:9.1f}{1e3 * simulated:9.1f}{simulated / measured - 1:+8.1%}")
    if a.out:
        line = {
            "net": a.net,
            "batch": a.batch,
            "ranks": ranks,
            "rate": a.rate,
            "chunk_bytes": a.chunk_bytes,
            "links": numbers,
            "seconds": rows,
        }
        with open(a.out, "a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
