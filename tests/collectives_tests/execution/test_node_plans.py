"""Plans inside nodes are right on memory that is seen late, with ranks that go on and barriers that open in any order.

The plans, nodes and windows are the real ones; the MPI below them is made up (made_up_node.py).
"""

from __future__ import annotations

import atexit
from collections.abc import Callable
from itertools import product
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from made_up_node import Fibres, MadeUpComm, MadeUpWin
from mpi4py import MPI
from mutants import changed

from collectives.errors import DisagreementError, ScheduleError
from collectives.execution import node, node_plans, plans, window
from collectives.execution.node_plans import Root
from collectives.execution.operations import OPERATIONS
from collectives.execution.plans import Plan
from collectives.schedules.algorithms import make_schedule
from collectives.simulation.adversary import EagerDelivery, LazyDelivery, RandomDelivery
from collectives.verbs import SCHEDULED, block_of, even_bounds

EACH, COUNT, TURNS = 3, 11, 3  # ranks of a node, elements, times
CASES = [(what, in_place) for what in SCHEDULED for in_place in (True, False) if what != "bcast" or in_place]
CODE = {"NodeComm": node.NodeComm, **vars(plans), **vars(node_plans)}


def run(plan: Plan) -> None:
    plan.run()


def start_and_finish(plan: Plan) -> None:
    plan.start()
    plan.finish()


@pytest.fixture(autouse=True)
def windows_are_made_up(monkeypatch):
    monkeypatch.setattr(MPI, "Win", MadeUpWin)


class Ranks:
    """Ranks of nodes that do one collective over and over, with other numbers each time, by the plans of `code`."""

    def __init__(self, what: str, nodes: int, in_place: bool, code: dict[str, Any]):
        self.what, self.nodes, self.in_place, self.code = what, nodes, in_place, code
        self.size, self.root = nodes * EACH, nodes * EACH - 1
        self.verb, self.bounds = SCHEDULED[what], even_bounds(COUNT, self.size)
        self.op = OPERATIONS["sum"] if self.verb.joins else None

    def prove(self, order: LazyDelivery, way: Callable[[Plan], None], in_windows: bool, coherent: bool) -> None:
        """Run them all to their ends. Raise ScheduleError where a result is wrong."""
        network = Fibres(self.size, order, coherent)
        network.work(lambda rank: self.work(network, rank, way, in_windows))

    def work(self, network: Fibres, rank: int, way: Callable[[Plan], None], in_windows: bool) -> None:
        first = rank - rank % EACH
        node = self.code["NodeComm"](MadeUpComm(network, range(first, first + EACH), rank))
        try:
            self.use(node, self.plan(network, node, rank), rank, way, in_windows)
            node.free()
        finally:
            atexit.unregister(node.free)

    def use(self, node: Any, plan: Plan, rank: int, way: Callable[[Plan], None], in_windows: bool) -> None:
        empty, dtype = node.empty if in_windows else np.empty, np.dtype(np.float64)
        send = empty((COUNT,), dtype)
        recv = send if self.in_place else empty((COUNT,), dtype)
        gets = slice(*self.verb.result(rank, self.root, self.bounds))
        brings = [slice(*self.verb.contribution(each, self.root, self.bounds)) for each in range(self.size)]
        apart = self.verb.has_blocks and not self.in_place
        has_result = self.what != "bcast" and gets.start < COUNT and gets != slice(0, 0)
        plan.bind(send[brings[rank]] if apart else send, None if not has_result else recv[gets] if apart else recv)
        for turn in range(TURNS):
            given = np.random.default_rng(turn).integers(1, 1 << 30, (self.size, COUNT)).astype(dtype)
            send[...] = given[rank]
            way(plan)
            expected = sum(
                np.where(np.isin(range(COUNT), np.arange(COUNT)[part]), row, 0)
                for row, part in zip(given, brings, strict=True)
            )
            if (recv[gets] != expected[gets]).any():
                raise ScheduleError(f"rank {rank} has a wrong result in turn {turn}")
            send[...] = recv[...] = -1  # they are the caller's again

    def plan(self, network: Fibres, node: Any, rank: int) -> Plan:
        if self.nodes == 1 and self.verb.has_blocks:
            return self.code["NodeBlocksPlan"](node, self.op, self.bounds)
        if self.nodes == 1:
            return self.code["NodePlan"](node, self.what, self.op, self.root)
        cross = MadeUpComm(network, range(rank % EACH, self.size, EACH), rank)
        if self.verb.has_blocks:
            parts = [block_of(other, self.bounds) for other in range(rank % EACH, self.size, EACH)]
            counts = [stop - start for start, stop in parts]
            schedule = make_schedule(self.what, "ring", self.nodes, sum(counts), chunk=2, counts=counts)
            between = self.code["SchedulePlan"](schedule, cross, self.op)
            return self.code["LeaderBlocksPlan"](node, cross, between, self.op, parts, COUNT)
        start, stop = node.slice(COUNT)
        root = Root(self.root // EACH, self.root % EACH)
        schedule = make_schedule(self.what, "chain", self.nodes, stop - start, chunk=2, root=root.node)
        between = self.code["SchedulePlan"](schedule, cross, self.op)
        return self.code["LeaderPlan"](node, cross, between, self.what, self.op, root)


def prove(ranks: Ranks) -> None:
    """Prove that they are right in all orders, over windows that are seen at once or late, and over own memory."""
    for way, (in_windows, coherent) in product((run, start_and_finish), ((True, True), (True, False), (False, True))):
        for order in (LazyDelivery(), EagerDelivery(), RandomDelivery(0), RandomDelivery(1)):
            ranks.prove(order, way, in_windows, coherent)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize(("what", "in_place"), CASES)
def test_plans_are_right_whatever_is_seen_when(what: str, in_place: bool, nodes: int) -> None:
    prove(Ranks(what, nodes, in_place, CODE))


SYNC = "        self._sync()\n"
BARRIER = "        if wait:\n            self.comm.Barrier()\n"
BARRIER_OPENS = "            yield self.comm.Ibarrier()\n"
PUT = "            node.put(target, start, self._slice)\n"
FINISH = "        yield from node.finish(wait)\n"
NEEDED: list[tuple[ModuleType, str, str]] = [
    (node, SYNC + "        self._mine[:]", "        self._mine[:]"),
    (node, SYNC + "        places", "        places"),
    (node, SYNC + BARRIER, BARRIER),
    (node, BARRIER_OPENS + SYNC, BARRIER_OPENS),
    (node, "self.comm.Barrier()", "pass"),
    (node, BARRIER_OPENS, "            yield from ()\n"),
    (node, "yield self.comm.Iallgather(*message)", "yield from [self.comm.Iallgather(*message)][:0]"),
    (window, "self.win.Sync()", "pass"),
    (node_plans, FINISH + "\n    def _reduce", "\n    def _reduce"),
    (node_plans, PUT + FINISH, PUT),
    (node_plans, FINISH + "\n\nclass LeaderPlan", "\n\nclass LeaderPlan"),
    (node_plans, FINISH + "\n\nclass Root", "\n\nclass Root"),
]


@pytest.mark.parametrize(("module", "old", "new"), NEEDED)
def test_what_orders_memory_is_needed(monkeypatch: pytest.MonkeyPatch, module: ModuleType, old: str, new: str) -> None:
    names = changed(module, old, new)
    if module is window:
        monkeypatch.setattr(node, "SharedWindow", names["SharedWindow"])
    code = {name: names.get(name, real) if module is not window else real for name, real in CODE.items()}
    with pytest.raises((ScheduleError, DisagreementError)):
        for (what, in_place), nodes in product(CASES, (1, 2)):
            prove(Ranks(what, nodes, in_place, code))
