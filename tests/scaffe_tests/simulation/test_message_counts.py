"""Messages are counted before a simulation begins: as many as schedules have, and as ranks then send."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from typing import Any

import pytest

from collectives.schedules.algorithms import Choice, make_schedule
from collectives.simulation import cost
from collectives.simulation.communicator import Chooser
from collectives.simulation.ranks import SimulatedRanks
from scaffe import Net
from scaffe.errors import ScaffeError
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster, messages, simulate_iteration
from scaffe.simulation.choosing import chooser
from scaffe.simulation.iteration import CHUNK, build
from scaffe.simulation.layer_times import of_device
from scaffe.simulation.messages import MOST, check_messages, count
from scaffe.simulation.training import SimulatedJob

ELEMENTS, CUT = 1000, 64


@cache
def net() -> Net:
    return build("lenet", 4)


def counted(run: Run, ranks: int, chunk_bytes: int = 0) -> int:
    return count(*job(run, ranks), chunk_bytes or run.chunk_bytes)


def job(run: Run, ranks: int) -> tuple[SimulatedJob, Run, Chooser]:
    cluster = find_cluster("cluster-a")
    shared = Chooser(cluster.links.group(ranks), chooser(cluster.links, ranks), CHUNK)
    return SimulatedJob(net(), ranks, cluster, of_device(net(), cluster), 1, (), 0), run, shared


@pytest.mark.parametrize("ranks", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("what", "name"),
    [
        ("reduce", "chain"), ("bcast", "binomial"), ("allreduce", "cb-4"), ("reduce", "two-tree"),
        ("allreduce", "ring"), ("allreduce", "halving"),
    ],
)  # fmt: skip
def test_a_collective_has_the_messages_of_its_schedule(what: str, name: str, ranks: int) -> None:
    schedule = make_schedule(what, name, ranks, ELEMENTS, chunk=CUT)
    found = messages.messages(what, ranks, 4 * ELEMENTS, 4, Choice(name, 4 * CUT))
    assert found == cost.count(schedule).messages.total()


@pytest.mark.parametrize("ranks", [8, 24, 64])
@pytest.mark.parametrize("name", ["ring", "halving", "chain"])
def test_a_bucket_of_one_chunk_has_a_message_in_each_round(name: str, ranks: int) -> None:
    schedule = make_schedule("allreduce", name, ranks, ELEMENTS, chunk=ELEMENTS)
    found = messages.messages("allreduce", ranks, 4 * ELEMENTS, 4, Choice(name, 4 * ELEMENTS))
    assert found == cost.count(schedule).messages.total()


@pytest.mark.parametrize("sync", ["reduce-bcast", "allreduce"])
@pytest.mark.parametrize("workflow", ["SC-B", "SC-OB", "SC-OBR"])
def test_ranks_send_about_as_many(workflow: str, sync: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Some fewer: the first iteration has no broadcasts, and without an order of broadcasts one less precedes."""
    sent, send = [0], SimulatedRanks.send

    def counting(*given: Any) -> Any:
        sent[0] += 1
        return send(*given)

    monkeypatch.setattr(SimulatedRanks, "send", counting)
    run = Run(workflow, sync, reduce="auto", bucket_bytes="256K", chunk_bytes=1 << 14)
    simulate_iteration(net(), 4, "cluster-a", run)
    assert sent[0] <= counted(run, 4) <= 1.4 * sent[0]


def test_the_chunk_that_the_error_names_is_the_least_that_is_simulated() -> None:
    run = Run("SC-OBR", reduce="chain", chunk_bytes=1)
    with pytest.raises(ScaffeError, match="10.* million messages are too many") as error:
        check_messages(*job(run, 4))
    found = re.search(r"give --chunk-bytes (\d+) or more", str(error.value))
    assert found is not None
    assert counted(run, 4, int(found[1])) <= MOST < counted(run, 4, int(found[1]) // 2)


def test_fewer_iterations_come_before_longer_chunks() -> None:
    given, run, shared = job(Run("SC-OBR", reduce="chain", chunk_bytes=1 << 10), 8)
    many = replace(given, iterations=1000)
    with pytest.raises(ScaffeError, match=r"give --iterations (\d+) or fewer") as error:
        check_messages(many, run, shared)
    found = re.search(r"--iterations (\d+)", str(error.value))
    assert found is not None
    most, over = (count(replace(given, iterations=int(found[1]) + k), run, shared, run.chunk_bytes) for k in (0, 1))
    assert most <= MOST < over


def test_all_workflows_of_auto_are_counted_before_the_first_is_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    run = Run("auto", "allreduce", reduce="ring", bucket_bytes="0")
    counts = [counted(one, 4) for one in run.candidates.values()]
    assert counts[0] < max(counts)
    monkeypatch.setattr(messages, "MOST", counts[0])
    monkeypatch.setattr(SimulatedRanks, "run", lambda *given: pytest.fail("a workflow was simulated"))
    with pytest.raises(ScaffeError, match="messages are too many to simulate"):
        simulate_iteration(net(), 4, "cluster-a", run)


def test_ranks_for_which_no_chunk_is_long_enough_are_refused() -> None:
    with pytest.raises(ScaffeError, match="too many to simulate .*: simulate fewer ranks; --best"):
        check_messages(*job(Run("SC-B", "allreduce", reduce="ring"), 1024))


def test_what_takes_minutes_says_so_and_what_takes_seconds_does_not(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(messages.log, "info", lambda text, *given: lines.append(text % given))
    check_messages(*job(Run("SC-B", reduce="chain", chunk_bytes=64), 16))
    check_messages(*job(Run("SC-B", reduce="chain"), 16))
    assert lines == ["3.2 million messages are to be simulated, which takes minutes"]
