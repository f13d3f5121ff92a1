"""What a rank waits for at the end of its program is in its record, by which a watch finds who has ended."""

from types import SimpleNamespace

import pytest
from mpi4py import MPI

from scaffe.errors import ScaffeError
from scaffe.monitor.record import RANKS, WAIT, unpacked
from scaffe.parallel import world as worlds
from scaffe.parallel.world import World
from scaffe.timeline import trace


@pytest.fixture
def world(monkeypatch):
    """A World whose `waits` are those that it has recorded in a barrier, and as spares end."""
    made = World(MPI.COMM_SELF)
    made.waits = []

    def see(*given):
        made.waits.append(unpacked(made.record.row)[WAIT])

    monkeypatch.setattr(made, "comm", SimpleNamespace(Barrier=see))
    monkeypatch.setattr(made, "dismiss_spares", see)
    return made


def test_a_rank_that_leaves_waits_for_the_others_and_for_spares(world, monkeypatch):
    codes = []
    monkeypatch.setattr(worlds.os, "_exit", codes.append)
    world.leave(3)
    assert (codes, world.waits) == ([3], [RANKS, RANKS])


def test_a_rank_that_fails_as_all_do_waits_for_the_others(world, monkeypatch):
    monkeypatch.setattr(world, "is_alike", lambda error: True)
    assert world.fail(ScaffeError("no such file")) == 2
    assert world.waits == [RANKS]
    assert unpacked(world.record.row)[WAIT] == 0


def test_a_rank_that_writes_a_trace_waits_for_the_others_clocks_and_texts(monkeypatch, tmp_path):
    world, waits = World(MPI.COMM_SELF), []

    def see(value):
        waits.append(unpacked(world.record.row)[WAIT])
        return value

    monkeypatch.setattr(trace, "clock_offset", lambda world: see(0.0))
    trace.write(world, tmp_path / "timeline.json", [], {})
    monkeypatch.setattr(world, "comm", SimpleNamespace(recv=lambda source: see(f"of rank {source}")))
    assert trace._received(world, 1) == "of rank 1"
    assert waits == [RANKS, RANKS]
