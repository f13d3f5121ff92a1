"""Meters add up what is waited for and what is under way; the numbers here follow from a clock that we turn."""

import itertools
from threading import Thread

import numpy as np
import pytest
from mpi4py import MPI

from collectives import Communicator, Staged
from scaffe.monitor.record import RankRecord
from scaffe.parallel import meter as meters
from scaffe.parallel.meter import ALL, Meter, describe, hidden_share
from scaffe.parallel.world import World


@pytest.fixture
def clock(monkeypatch):
    """Return a clock that shows what is set, in a list of one number."""
    now = [0.0]
    monkeypatch.setattr(meters, "perf_counter", lambda: now[0])
    return now


def turn(clock, seconds):
    clock[0] += seconds


def test_a_wait_is_exposed_and_an_update_within_it_is_not(clock):
    meter, notes = Meter("aggregation"), []
    meter.note = lambda *note: notes.append(note)

    def work():
        turn(clock, 3)
        meter.compute(0, lambda: turn(clock, 2))
        turn(clock, 1)

    meter.wait(1, work)
    assert (meter.exposed, meter.busy) == (4, 0)
    assert notes == [("update", 0, 3, 5, None), ("aggregation", 1, 0, 6, None)]


def test_messages_handled_between_layers_are_exposed_if_any_moved(clock):
    meter = Meter("aggregation")

    def progress(seconds, moved):
        turn(clock, seconds)
        meter.compute(0, lambda: turn(clock, 1))
        return moved

    meter.handle(lambda: progress(2, True))
    meter.handle(lambda: progress(4, False))
    assert meter.exposed == 2


def in_a_thread(work, *arguments):
    thread = Thread(target=work, args=arguments)
    thread.start()
    thread.join()


def test_of_the_waits_of_several_instances_the_mean_counts_and_the_main_threads_holds_up_all(clock):
    meter = Meter("propagation")
    meter.instances = 3
    for seconds in (3, 6):
        in_a_thread(meter.wait, 0, lambda seconds=seconds: turn(clock, seconds))
    assert meter.exposed == 3
    meter.wait(ALL, lambda: turn(clock, 5))
    assert meter.exposed == 3 + 5


def test_an_update_in_another_thread_shortens_no_wait(clock):
    meter = Meter("aggregation")
    meter.wait(1, lambda: in_a_thread(meter.compute, 0, lambda: turn(clock, 2)))
    assert meter.exposed == 2


def test_blocking_messages_hide_nothing(clock):
    meter = Meter("propagation")
    meter.block(lambda: turn(clock, 2))
    meter.compute(0, lambda: turn(clock, 5))
    meter.block(lambda: turn(clock, 1))
    assert (meter.exposed, meter.busy) == (3, 3)
    assert hidden_share(meter.exposed, meter.busy) == 0


def test_a_blocking_message_is_told_as_a_wait_and_as_a_message(clock):
    meter, notes = Meter("propagation"), []
    meter.note = lambda *note: notes.append(note)
    meter.block(lambda: turn(clock, 2))
    assert notes == [("propagation", ALL, 0, 2, None), ("propagation", ALL, 0, 2, 0)]


def test_hidden_is_what_was_not_waited_for():
    assert hidden_share(1, 4) == 0.75
    assert hidden_share(5, 4) == 0
    assert hidden_share(0, 0) == 0


def test_stages_under_way_at_once_count_once(monkeypatch):
    arrays = [np.ones(3, np.float32) for _ in range(3)]
    comm = Communicator(MPI.COMM_SELF)
    staged = Staged(comm, "reduce", arrays)
    ticks = itertools.count()
    monkeypatch.setattr("collectives.communicator.time.perf_counter", lambda: float(next(ticks)))
    ended = []
    staged.on_end = lambda *span: ended.append(span)
    staged.start(ready=True)
    staged.wait()
    # Two lanes: stages 0 and 1 begin at 0 and 1 and end at 2 and 3; stage 2 follows.
    assert ended == [(0, 0, 2), (1, 1, 3), (2, 4, 5)]
    assert staged.busy == 3 + 1
    staged.free()
    comm.free()


class AllAlike:
    """A communicator on which other ranks say what is given."""

    def __init__(self, *others):
        self.others = others

    def allgather(self, mine):
        return [mine, *self.others]


def test_the_last_line_tells_mean_and_worst_rank():
    world = World.__new__(World)
    world._own, world._main = None, RankRecord()
    world.comm = AllAlike([(0.5, 1.0), (0.0, 0.0)], [(0.0, 1.0), (0.0, 0.0)])
    propagation, aggregation = Meter("propagation"), Meter("aggregation")
    propagation.exposed, propagation._blocked = 0.1, 1.0
    assert describe(world, [propagation, aggregation], 10) == (
        "propagation: 80% hidden, 20 ms an iteration exposed (worst, rank 1: 50%, 50 ms); aggregation: no messages"
    )
