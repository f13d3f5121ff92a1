"""The timer of iterations: what counts, on which rank, and the programs that time by it, in short."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_the_first_and_the_last_iteration_of_a_step_do_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    steady = module("steady")
    meter, clock = SimpleNamespace(exposed=0.0), SimpleNamespace(wall=0.0, used=0.0)
    clocks = {"perf_counter": lambda: clock.wall, "process_time": lambda: clock.used}
    monkeypatch.setattr(steady, "time", SimpleNamespace(**clocks))
    workflow = SimpleNamespace(is_settled=True, aggregate=SimpleNamespace(meter=meter))
    solver = SimpleNamespace(world=SimpleNamespace(allgather=lambda mine: [mine]), steps=[])

    def step(count: int) -> None:
        """Run iterations of which the first and the last take longer."""
        solver.steps.append(count)
        for k in range(count):
            whole = 100.0 if k == 0 else 50.0 if k == count - 1 else 2.0 + k
            clock.wall, clock.used, meter.exposed = (
                value + part * whole for value, part in ((clock.wall, 1), (clock.used, 0.5), (meter.exposed, 0.25))
            )
            solver.trial.took(whole)

    solver.step = step
    timed = steady.steady(solver, workflow, 3)
    for _ in range(2):
        assert timed() == steady.Spent(4.0, 2.0, 1.0)
    assert solver.steps == [1, 5, 5]


def test_an_iteration_and_its_exchange_are_of_one_rank_and_of_one_round() -> None:
    steady, figure = module("steady"), module("swcaffe_10")
    ranks = [steady.Spent(3.0, 0.0, 1.0), steady.Spent(2.0, 0.0, 1.9)]
    assert steady.slowest(SimpleNamespace(allgather=lambda mine: ranks), ranks[1]) == ranks[0]
    rounds = {"alone": [1.0, 3.0, 2.0], "together": [7.0, 5.0, 6.0], "exchange": [0.1, 0.3, 0.2]}
    assert figure.middle(rounds) == {"alone": 2.0, "together": 6.0, "exchange": 0.2}


def on_two_ranks(per_node: int, *program: str) -> str:
    """Return what two ranks of this machine print."""
    lab = module("lab")
    return lab.output(str(lab.JOBS / "mpirun.sh"), "-n", "2", sys.executable, "-m", "mpi4py", *program)


def test_workflows_are_timed_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    replays = module("replays")
    monkeypatch.setattr(replays.lab, "on_nodes", on_two_ranks)
    rows, short = ["SC-B:auto", "SC-OBR:auto", "SC-B:binomial"], ("--rounds", "1", "--iterations", "1")
    found = replays.replayed("flops:1e10", ",".join(rows), "lenet", 4, *short, talking=True)
    assert list(found["ms"]) == [replays.ALONE, replays.TALKING, *rows]
    assert found["sums"][replays.ALONE] == 0 < found["sums"]["SC-B:auto"]
    for row, ms in found["ms"].items():  # rank 0's, beside the slowest rank's
        assert 0 < found["sums"][row] + found["rest"][row] <= ms + 0.2
    bare = replays.replayed("flops:1e10", rows[0], "lenet", 4, *short)
    assert list(bare["ms"]) == [replays.ALONE, rows[0]] and bare["rate"] == 1e10


def test_an_exchange_is_a_part_of_its_iteration() -> None:
    lab = module("lab")
    printed = lab.last_json(on_two_ranks(1, str(lab.JOBS / "papers/one_exchange.py"), "0.01", "256", "64"))
    assert set(printed) == {"links", "256", "64"}
    for rounds in (printed["256"], printed["64"]):
        assert len(set(map(len, rounds.values()))) == 1
        pairs = zip(rounds["exchange"], rounds["together"], strict=True)
        assert all(0 < exchange < together for exchange, together in pairs), json.dumps(rounds)


def test_workflows_are_simulated_beside_their_measurement_in_short() -> None:
    lab = module("lab")
    program = str(lab.JOBS / "bench/simulated.py"), "lenet", "--batch", "4", "--rate", "1e10", "--iterations", "1"
    rows = ["SC-B:chain", "SC-OBR:chain"]
    printed = on_two_ranks(1, *program, "--runs", ",".join(rows)).splitlines()
    assert [line.split()[0] for line in printed[-2:]] == rows
