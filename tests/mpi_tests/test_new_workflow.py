"""A workflow is added by a file alone: flags and files know its name, and it trains to SC-B's bits."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import nets
import pytest
from mpi4py import MPI

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_settings
from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.parallel import workflows
from scaffe.parallel.run import Run
from scaffe.parallel.workflows import workflow
from scaffe.parallel.world import World
from scaffe.training.settings import read_settings
from scaffe.training.solver import Solver

COMM = MPI.COMM_WORLD
NAME = "SC-ours"
MODULE = f'''
"""As SC-B, the reduce in two halves."""

from scaffe.parallel.aggregate import BlockingAggregate
from scaffe.parallel.workflows.sc_b import ScB
from scaffe.parallel.workflows.workflow import register


class Halves(BlockingAggregate):
    reduced = []  # bytes

    def pieces(self):
        (gradients,) = super().pieces()
        middle = len(gradients) // 2
        halves = gradients[:middle], gradients[middle:]
        self.reduced.extend(half.nbytes for half in halves)
        return halves


class ScOurs(ScB):
    name = "{NAME}"

    def aggregation(self):
        return Halves(*self.summing, comm=self.comm, **self.parts.how)


register(ScOurs)
'''


@pytest.fixture
def added(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Add the workflow's file to the package, and return the module's name."""
    (tmp_path / "sc_ours.py").write_text(MODULE)
    name = f"{workflows.__name__}.sc_ours"
    monkeypatch.setattr(workflows, "__path__", [*workflows.__path__, str(tmp_path)])
    monkeypatch.setattr(workflow, "_registered", dict(workflow.registered()))
    workflows.discover()
    yield name
    del sys.modules[name], workflows.sc_ours


@pytest.mark.mpi(min_size=2)
def test_a_new_workflow_trains_to_sc_bs_bits(added: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = nets.shared_folder(COMM, tmp_path_factory, "halves")

    def train(name: str) -> bytes:
        param = nets.solver_with(nets.tower(folder / "db"), base_lr=0.1)
        solver = Solver(param, world=World(COMM), compute=Compute(engine="reference"), run=Run(name, reduce="chain"))
        solver.step(6)
        solver.close()
        return solver.net.packed.data.tobytes()

    expected, ours = train(Run.workflow), train(NAME)
    assert ours == expected
    reduced = sys.modules[added].Halves.reduced
    assert len(reduced) == 2 * 6 and abs(reduced[0] - reduced[1]) <= 4


@pytest.mark.mpi
def test_a_new_workflow_is_known_to_flags_files_and_auto(added: str, tmp_path: Path, capsys) -> None:
    parser = Parser(prog="scaffe")
    add_settings(parser, Run)
    assert parser.parse_args(["--workflow", NAME]).workflow == NAME
    (tmp_path / "cluster.toml").write_text(f'workflow = "{NAME}"\n')
    assert read_settings(tmp_path / "cluster.toml").run.candidates == {NAME: Run(NAME)}
    tried = list(Run("auto", drive="hook").candidates)
    assert tried[-1] == NAME and {"SC-B", "SC-OBR by hook"} < set(tried)
    with pytest.raises(ScaffeError, match=f"unknown workflow 'SC-X'; known: auto SC-B .*{NAME}$"):
        Run("SC-X")
    with pytest.raises(SystemExit):
        parser.parse_args(["--workflow", "SC-X"])


@pytest.mark.mpi
@pytest.mark.parametrize("name", ["", "auto", "SC-B"])
def test_a_name_that_is_taken_is_refused(name: str) -> None:
    kind = type("Other", (workflow.Workflow,), {"name": name})
    with pytest.raises(ValueError, match=f"Other needs a name of its own, not '{name}'"):
        workflow.register(kind)
    assert kind not in workflow.registered().values()
