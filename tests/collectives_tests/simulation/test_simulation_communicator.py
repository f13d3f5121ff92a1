"""Communicators in virtual time take the times of the event simulator and of S-Caffe's equations."""

from __future__ import annotations

import numpy as np
import pytest

from collectives.errors import AlgorithmError, ScheduleError
from collectives.execution.execute import IN_FLIGHT, InFlight
from collectives.model.clusters import KESCH, Cluster
from collectives.model.network import LinkNetwork
from collectives.model.predicting import predict
from collectives.schedules.algorithms import Choice
from collectives.simulation.communicator import Chooser, SimulatedCommunicator
from collectives.simulation.ranks import SimulatedRanks
from collectives.staged import Staged
from tests.support.equations import binomial_time, chain_time

EVEN = Cluster("even", 64, 1, alpha_in=0, beta_in=1, alpha=2e-5, beta=1e-9, gamma=0)
CHUNK = 64 << 10


def elements(nbytes: int) -> np.ndarray:
    return np.broadcast_to(np.float32(0), nbytes // 4)


def run(cluster: Cluster, ranks: int, work) -> tuple[float, Chooser]:
    """Return the seconds of `work(comm)` on all ranks."""
    group = cluster.group(ranks)
    chooser = Chooser(group, lambda what, nbytes: Choice("chain"), CHUNK)
    world = SimulatedRanks(ranks, LinkNetwork(cluster, group, 1))
    return world.run(lambda rank: work(SimulatedCommunicator(rank, chooser))), chooser


@pytest.mark.parametrize("ranks", [2, 5, 8, 20])
@pytest.mark.parametrize("what, name", [("reduce", "cb-4"), ("bcast", "binomial"), ("allreduce", "ring")])
def test_a_blocking_collective_takes_the_event_simulators_time(what: str, name: str, ranks: int) -> None:
    nbytes = 20 * CHUNK
    found, chooser = run(KESCH, ranks, lambda comm: getattr(comm, what)(elements(nbytes), algorithm=name))
    schedule = chooser.schedule(what, name, nbytes, 4, 0, 0)
    in_flight = InFlight(sends=max(2, IN_FLIGHT // CHUNK))
    assert found == pytest.approx(predict(schedule, KESCH, in_flight=in_flight), rel=0.005)  # ties may start otherwise


@pytest.mark.parametrize("chunks", [1, 16])
def test_chain_and_binomial_take_the_papers_times(chunks: int) -> None:
    one = EVEN.alpha + CHUNK * EVEN.beta
    chain, _ = run(EVEN, 8, lambda comm: comm.reduce(elements(chunks * CHUNK), algorithm="chain"))
    assert chain == pytest.approx(chain_time(8, chunks, one))
    binomial, _ = run(EVEN, 8, lambda comm: comm.reduce(elements(CHUNK), algorithm="binomial"))
    assert binomial == pytest.approx(binomial_time(8, one))


def test_stages_share_the_root_s_port_and_follow_each_other() -> None:
    """Two ranks: all stages' messages pass one port, so together they take their sum, in whatever lanes."""

    def work(comm: SimulatedCommunicator) -> None:
        staged = Staged(comm, "reduce", [elements(CHUNK)] * 6, algorithm="chain")  # type: ignore[arg-type]
        staged.start(ready=True)
        comm.owner.background = staged.progress
        comm.owner.wake()
        comm.owner.wait_until(staged.done)

    found, _ = run(EVEN, 2, work)
    assert found == pytest.approx(6 * (EVEN.alpha + CHUNK * EVEN.beta))


def test_a_rank_that_waits_forever_is_an_error() -> None:
    with pytest.raises(ScheduleError, match="1 of 3 simulated ranks wait forever"):
        run(EVEN, 3, lambda comm: comm.rank == 2 and comm.bcast(elements(CHUNK), algorithm="chain"))


def test_auto_is_what_the_chooser_says_and_chunks_are_the_call_s_the_choice_s_or_its_own() -> None:
    chooser = Chooser(EVEN.group(2), lambda what, nbytes: Choice("chain", 128 * (nbytes > 100)), CHUNK)
    found = [chooser.choice("reduce", "auto", *given)[:2] for given in ((200, 64), (200, 0), (100, 0))]
    assert found == [("chain", 64), ("chain", 128), ("chain", CHUNK)]
    assert chooser.choice("reduce", "binomial", 200, 0)[:2] == ("binomial", CHUNK)
    chooser.schedule("reduce", "auto", 200, 4, 0, 0)
    assert chooser.chosen["reduce", 200][:2] == ("chain", 128)
    with pytest.raises(AlgorithmError, match="'slices' is no schedule, so it can't be simulated; known are chain"):
        chooser.schedule("reduce", "slices", 200, 4, 0, 0)


def test_the_first_rank_is_the_root_by_default() -> None:
    ends: dict[int, float] = {}

    def work(comm: SimulatedCommunicator) -> None:
        comm.bcast(elements(CHUNK), algorithm="chain")
        ends[comm.rank] = comm.owner.clock

    run(EVEN, 3, work)
    assert ends[0] < min(ends[1], ends[2])
