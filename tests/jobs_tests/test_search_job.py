"""Random nets on several ranks end as on one, and random faults leave the weights of a run without."""

from __future__ import annotations

import re
import sys
from functools import partial
from itertools import product
from pathlib import Path

import numpy as np
import pytest

JOBS = Path(__file__).resolve().parents[2] / "jobs"
sys.path.append(str(JOBS))  # jobs are no package
import search_faults  # noqa: E402
import search_ranks  # noqa: E402
from search_draw import ALGORITHMS, ENGINES, RULES, draw  # noqa: E402
from search_nets import run_nets  # noqa: E402

from collectives.codecs import CODECS  # noqa: E402
from scaffe.parallel.drive import DRIVES  # noqa: E402
from scaffe.parallel.instances.gathers.gather import registered as gathers  # noqa: E402
from scaffe.parallel.owners import OWNERS  # noqa: E402
from scaffe.parallel.run import SYNCS  # noqa: E402
from scaffe.parallel.workflows.workflow import registered as workflows  # noqa: E402

SEED, NETS, FAULTS, SECONDS = 1, 16, 1, 120  # of a job of a machine of its own
pytestmark = [pytest.mark.mpi_skip, pytest.mark.watchdog(10 * SECONDS)]  # they start an mpirun of their own


def test_random_nets_on_several_ranks_end_as_on_one(tmp_path: Path) -> None:
    found = [*run_nets(SEED, range(NETS), tmp_path, SECONDS)]
    bad = [f"jobs/search.py nets --seed {SEED} --only {one.case}: {one}" for one in found if not one.is_good]
    assert not bad, "\n".join(bad)
    assert {one.case for one in found} == {*range(NETS)}
    assert [one.result for one in found].count("equal") > 0.9 * NETS


def test_random_faults_leave_the_weights_of_an_undisturbed_run(mpirun, tmp_path: Path) -> None:
    faults = [search_faults.draw(SEED, number, mpirun.is_open_mpi) for number in range(FAULTS)]
    found = [*search_faults.run_faults(faults, tmp_path, SECONDS)]
    again = f"jobs/search.py faults --seed {SEED} --only"
    wrong = [f"{again} {one.fault.number}: {one.fault.cell} {one.wrong}" for one in found if one.wrong]
    assert not wrong, "\n".join(wrong)
    assert {one.fault.number for one in found} == {*range(FAULTS)}


def test_all_kinds_of_trainings_are_drawn() -> None:
    cases = [draw(SEED, number) for number in range(400)]
    solvers = [case.several.solver for case in cases]
    for pattern in (
        "iter_size: 3", "clip_gradients: 0", '"L1"', '"L2"', "lr_mult: 0", "propagate_down: false", "ignore_label",
        "VALID", "NONE", "test_state", "test_compute_loss: true", '"BatchNorm"', '"BN"', '"Dropout"',
        r'name: "w\d+b" lr_mult: 0', r'Loss"(.|\n)*Loss"', "mirror: true", *(f'^type: "{rule}"' for rule in RULES),
    ):  # fmt: skip
        assert sum(bool(re.search(pattern, solver)) for solver in solvers) > 3, pattern
    runs = [case.several.run for case in cases]
    assert {(run["workflow"], run["sync"]) for run in runs} == {*product(workflows(), SYNCS)}
    assert {run["drive"] for run in runs} == {"auto", *DRIVES} and {run["reduce"] for run in runs} == {*ALGORITHMS}
    shared = {(run.get("owners", "root"), run["workflow"]) for run in runs}
    assert shared == {*product(OWNERS, workflows())}
    assert {run.get("gradient_numbers") for run in runs} == {None, *CODECS}
    assert {case.ranks for case in cases} == {*range(1, 9)}
    assert {case.several.instances.get("gather") for case in cases} == {None, *gathers()}


def test_a_case_is_drawn_from_its_seed_and_number_alone() -> None:
    for again in (draw, partial(search_faults.draw, is_tolerant=True)):
        assert again(7, 3) == again(7, 3)
        assert again(7, 3) != again(7, 4) != again(8, 4)


@pytest.mark.parametrize(("change", "result"), [(0, "equal"), (3e-6, "equal"), (5e-6, "wrong"), (np.nan, "wrong")])
def test_a_difference_above_rounding_is_wrong(change: float, result: str) -> None:
    values = {"ip[0]": np.array([0.5, 1.0]), "logged 0, Test loss": np.array(1.5)}
    alone = dict.fromkeys([*ENGINES, search_ranks.DISTURBED], values)
    several = values | {"ip[0]": np.array([0.5 + change, 1.0])}
    assert search_ranks.judge(several, alone, ENGINES[0]).result == result


def test_a_value_that_rounding_changes_on_one_rank_has_room_and_others_do_not() -> None:
    values = {"ip[0]": np.array([1.0]), "ip[1]": np.array([1.0])}
    disturbed = values | {"ip[0]": np.array([1 + 1e-5])}
    alone = {**dict.fromkeys(ENGINES, values), search_ranks.DISTURBED: disturbed}
    for name, result in (("ip[0]", "equal"), ("ip[1]", "wrong")):
        several = values | {name: np.array([1 - 9e-5])}
        assert search_ranks.judge(several, alone, ENGINES[0]).result == result
