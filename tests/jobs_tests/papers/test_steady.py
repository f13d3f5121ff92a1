"""The timer of iterations: what counts, on which rank, and the programs that time by it, in short."""

from __future__ import annotations

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
    followed: list[object] = []  # whose owners the history went to
    parts = SimpleNamespace(update=SimpleNamespace(follow=followed.append))
    solver = SimpleNamespace(world=SimpleNamespace(allgather=lambda mine: [mine]), parts=parts, steps=[])

    def step(count: int) -> None:
        """Run iterations of which the first and the last take longer."""
        solver.steps.append(count)
        for k in range(count):
            whole = 100.0 if k == 0 else 50.0 if k == count - 1 else 2.0 + k
            clock.wall, clock.used, meter.exposed = (
                value + part * whole for value, part in ((clock.wall, 1), (clock.used, 0.5), (meter.exposed, 0.25))
            )
            solver.parts.trial.took(whole)

    solver.step = step
    timed = steady.steady(solver, workflow, 3)
    for _ in range(2):
        assert timed() == steady.Spent(4.0, 2.0, 1.0)
    assert solver.steps == [1, 5, 5] and followed == [workflow, workflow]


def on_two_ranks(per_node: int, *program: str) -> str:
    """Return what two ranks of this machine print."""
    lab = module("lab")
    return lab.output(str(lab.JOBS / "mpirun.sh"), "-n", "2", sys.executable, "-m", "mpi4py", *program)


def test_workflows_are_timed_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    replays = module("replays")
    monkeypatch.setattr(replays.lab, "on_nodes", on_two_ranks)
    rows, short = ["SC-B:auto", "SC-OBR:auto", "SC-B:binomial"], ("--rounds", "1", "--iterations", "1")
    found = replays.replayed("flops:1e10", ",".join(rows), "lenet", 4, *short)
    assert list(found["ms"]) == [replays.ALONE, *rows]
    assert found["sums"][replays.ALONE] == 0 < found["sums"]["SC-B:auto"]
    for row, ms in found["ms"].items():  # rank 0's, beside the slowest rank's
        assert 0 < found["sums"][row] + found["rest"][row] <= ms + 0.2
    bare = replays.replayed("flops:1e10", rows[0], "lenet", 4, *short)
    assert list(bare["ms"]) == [replays.ALONE, rows[0]] and bare["rate"] == 1e10


def test_workflows_are_simulated_beside_their_measurement_in_short() -> None:
    lab = module("lab")
    program = str(lab.JOBS / "bench/simulated.py"), "lenet", "--batch", "4", "--rate", "1e10", "--iterations", "1"
    rows = ["SC-B:chain", "SC-OBR:chain"]
    printed = on_two_ranks(1, *program, "--runs", ",".join(rows)).splitlines()
    assert [line.split()[0] for line in printed[-2:]] == rows
