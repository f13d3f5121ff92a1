"""What a rank does in training, in order: layers that compute, collectives that it waits for or lets begin."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import nets
import pytest
from mpi4py import MPI

from collectives import Communicator, Staged
from scaffe.compute import Compute
from scaffe.net.net import Net
from scaffe.parallel.run import Run
from scaffe.parallel.world import World
from scaffe.training.solver import Solver


def tower_solver(folders: pytest.TempPathFactory, run: Run) -> Iterator[Solver]:
    """Yield a solver of nets.tower over all ranks, by the reference engine; close it afterwards. Collective."""
    folder = nets.shared_folder(MPI.COMM_WORLD, folders, run.workflow)
    param = nets.solver_with(nets.tower(folder / "db"))
    solver = Solver(param, world=World(MPI.COMM_WORLD), compute=Compute(engine="reference"), run=run)
    yield solver
    solver.close()


def recorded(monkeypatch: pytest.MonkeyPatch, net: Net) -> list[str]:
    """Return a list to which training adds what this rank does from now on.

    "forward NAME" and "backward NAME" are layers that begin to compute, "bcast" and "reduce" collectives that the
    rank waits for; "begin parameters of NAME" and "begin gradients of NAME" are stages that may begin.
    """
    events: list[str] = []

    def note(owner: object, name: str, texts: Callable[..., list[str]]) -> None:
        work = getattr(owner, name)

        def noting(*given, **how):
            events.extend(texts(*given, **how))
            return work(*given, **how)

        monkeypatch.setattr(owner, name, noting)

    def started(staged: Staged, ready: bool = False) -> list[str]:
        return [f"begin {name}" for name in staged.names] if ready else []

    for verb in ("bcast", "reduce"):
        note(Communicator, verb, lambda *_, verb=verb, **how: [verb])
    for layer in net.layers:
        for way in ("forward", "backward"):
            note(layer, way, lambda *_, text=f"{way} {layer.name}": [text])
    note(Staged, "start", started)
    note(Staged, "ready", lambda staged, stage: [f"begin {staged.names[stage]}"])
    return events
