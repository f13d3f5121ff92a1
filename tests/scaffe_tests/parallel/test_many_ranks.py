"""What grows with the number of ranks: counted on 16, 128 and 256 made-up ranks, and the table that follows from it."""

from __future__ import annotations

import pickle
import sys
from math import ceil, log2
from pathlib import Path
from typing import NamedTuple

import counted_ranks
import nets
import numpy as np
import pytest

from collectives.schedules.algorithms import make_schedule
from collectives.schedules.schedule import StepKind
from scaffe import Solver
from scaffe.compute import Compute
from scaffe.monitor.watching import Watching
from scaffe.parallel.run import Run
from scaffe.parallel.watch.datagrams import RECEIVERS, pack
from scaffe.parallel.world import World
from scaffe.training.recovery.state import State

EACH = 8  # ranks of a node
COUNTED = 16, 128, 256
FIRST = 64  # ranks whose cores the log shows, so that they tell more than the others
SHOWN = 1_000, 10_000, 100_000
PARAMETERS = 60_965_224  # AlexNet's
PAGE = Path(__file__).parents[3] / "docs" / "cluster.md"


class Found(NamedTuple):
    """What a rank has of a set-up, on average: calls, messages between nodes and within its own, and bytes.

    Then the bytes of the busiest rank, those of tables, and datagrams and bytes of the watch.
    """

    calls: int
    messages: float
    within: float
    nbytes: float
    most: float
    tables: float
    datagrams: float
    rows: float


@pytest.fixture(scope="module")
def found(tmp_path_factory) -> dict[int, Found]:
    folder = tmp_path_factory.mktemp("many")
    nets.write_images(folder / "db", 8)
    given = nets.solver_with(nets.tower(folder / "db"))

    def set_up(comm):
        made = World(comm)
        how = {"run": Run(reduce="chain", scaling="weak"), "watching": Watching(stall_seconds=600)}
        solver = Solver(given, world=made, compute=Compute(engine="reference"), **how)
        watch = solver.parts.watch
        made.watch.remove(watch)
        tables = made.places, made.launched, made.pids, made.firsts, made.gpus, made.group.nodes, made.group.supernodes
        peers = watch.datagrams._peers
        sent = sum(len(peer.places(lambda rank: True, -1)) for peer in peers)
        watch.datagrams.close()
        counted = comm.counts.of(comm.me)
        solver.checkpoints.close()
        return counted, (sum(map(sys.getsizeof, tables)), sent / EACH, watch._window.nbytes)

    results = {}
    with pytest.MonkeyPatch.context() as patch, counted_ranks.on_nodes(patch):
        patch.setattr("scaffe.parallel.watch.watch.Watch._run", lambda watch: None)  # hundreds would share one GIL
        patch.setattr("scaffe.parallel.watch.datagrams.addresses", lambda: [f"10.0.0.{counted_ranks.PLACE.node}"])
        for size in COUNTED:
            counted, rest = zip(*counted_ranks.run(size, EACH, set_up), strict=True)
            calls, messages, near, nbytes = np.mean(counted[FIRST if size > FIRST else 0 :], axis=0)
            most = max(one[-1] for one in counted)
            results[size] = Found(calls, messages - near, near, nbytes, most, *rest[1])
    return results


def at(ranks: int, found: dict[int, Found], field: str) -> float:
    """Return a value on more ranks, from those on 128 and 256: messages grow with log2 P at most, the rest with P."""
    grows = log2 if field in ("messages", "within") else float
    (few, less), (many, more) = ((grows(size), getattr(found[size], field)) for size in COUNTED[1:])
    return float(less + (more - less) / (many - few) * (grows(ranks) - few))


def test_a_set_up_has_as_many_calls_on_any_number_of_ranks(found) -> None:
    assert found[128].calls == found[256].calls <= found[16].calls <= 40


def test_messages_stay_and_bytes_grow_by_the_nodes(found) -> None:
    assert found[256].messages < found[16].messages * 1.25 and found[256].within <= found[16].within
    assert at(10_000, found, "messages") <= 40
    assert at(10_000, found, "nbytes") <= 100_000
    assert at(10_000, found, "most") <= 160_000
    per_rank = (found[256].nbytes - found[128].nbytes) / 128
    assert per_rank < 9  # a host's name, its addresses and ports are told once for 8 ranks


def test_a_node_sends_two_datagrams_to_each_other_node(found) -> None:
    for size, one in found.items():
        assert one.datagrams == RECEIVERS * (size // EACH - 1) / EACH


def test_a_rank_keeps_a_share_of_the_rows_of_other_nodes(found) -> None:
    rows = [found[size].rows / (1 + (size - EACH) / EACH) for size in COUNTED]
    assert len(set(rows)) == 1


def table(found: dict[int, Found]) -> list[str]:
    """Return the lines of the page's table."""
    heads = " | ".join(f"{ranks:,} ranks" for ranks in SHOWN)
    lines = [f"| | of a rank | {heads} |", "|---|---|" + "---:|" * len(SHOWN)]

    def row(what: str, unit: str, values: list[float]) -> None:
        lines.append(f"| {what} | {unit} | " + " | ".join(short(value) for value in values) + " |")

    row("set-up", "messages between nodes", [at(p, found, "messages") for p in SHOWN])
    row("", "messages within its node", [at(p, found, "within") for p in SHOWN])
    row("", "bytes", [at(p, found, "nbytes") for p in SHOWN])
    row("", "bytes, of the busiest", [at(p, found, "most") for p in SHOWN])
    row("", "memory, bytes", [at(p, found, "tables") for p in SHOWN])
    sends = [slices(p) for p in SHOWN]
    row("an iteration of AlexNet, each rank a slice, by halving", "messages", [sent for sent, _ in sends])
    row("", "bytes", [nbytes for _, nbytes in sends])
    datagram = len(pack(bytes(32), [(0,) * 6] * EACH, range(EACH), 0))
    datagrams = [at(p, found, "datagrams") for p in SHOWN]
    row("monitoring, each quarter of the stall time", "datagrams", datagrams)
    row("", "bytes", [one * datagram for one in datagrams])
    row("", "memory, bytes", [at(p, found, "rows") for p in SHOWN])
    state = len(pickle.dumps(State(9, 9, 9, 9, 9, (1.0,), {}, frozenset(), 9, "", False, None, True, -1)))
    row("a recovery: how far each rank has come", "messages", [2 * ceil(log2(p)) for p in SHOWN])
    row("", "bytes", [state * p for p in SHOWN])
    return lines


def slices(ranks: int) -> tuple[int, float]:
    """Return the messages and bytes that a rank sends by a reduce-scatter and an allgather."""
    sent, elements = 0, 0
    for what in ("reduce_scatter", "allgather"):
        steps = make_schedule(what, "halving", ranks, PARAMETERS, chunk=PARAMETERS).rank(1)
        sends = [step for step in steps if step.kind is StepKind.SEND]
        sent, elements = sent + len(sends), elements + sum(step.stop - step.start for step in sends)
    return sent, 4.0 * elements


def short(value: float) -> str:
    """Return a number of two digits, in thousands or millions where it is large."""
    for unit, name in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= unit:
            return f"{value / unit:.2g}{name}" if value < 99.5 * unit else f"{value / unit:.0f}{name}"
    return f"{value:.2g}" if value < 99.5 else f"{value:.0f}"


def test_the_pages_table_is_what_is_counted(found) -> None:
    lines = table(found)
    missing = [line for line in lines if line not in PAGE.read_text().splitlines()]
    assert not missing, "paste into docs/cluster.md:\n" + "\n".join(lines)
