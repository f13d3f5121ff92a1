"""Training reads the weights that it has updated, received, loaded or found written, with forms of them that last."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import nets
import numpy as np
import pytest
from both_engines import needs_bf16

from scaffe import solvers
from scaffe.compute import Compute
from scaffe.engines.onednn import weights as forms
from scaffe.parallel.instances.instances import Instances
from scaffe.training.solver import Solver

pytestmark = [needs_bf16, pytest.mark.mpi_skip]
ALL, NONE = 1 << 10, 1 << 40  # for weights.SMALL: weights of all layers have lasting forms, or those of none
Between = Callable[[Solver], object]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lasting")
    nets.write_images(folder / "db", count=24)
    return folder


def make(folder: Path, n: str = "1", numbers: str = "bf16", **fields: object) -> Solver:
    param = nets.solver_with(nets.lenet(folder / "db", 8), **fields)
    param.snapshot_prefix = str(folder / "snap")
    compute, given = Compute("onednn", numbers=numbers, threads=1), Instances(n, gather="slices", oversubscribe=True)
    return Solver(param, compute=compute, instances=given)


def train(
    folder: Path, between: Between = lambda solver: None, n: str = "1", numbers: str = "bf16", **fields: object
) -> list[bytes]:
    """Return the parameters after steps of 2 iterations, with `between` called between them."""
    solver, found = make(folder, n, numbers, **fields), []
    kept = between(solver)
    for _ in range(3):
        solver.step(2)
        if callable(kept):
            kept()
        found.append(np.concatenate([p.blob.values.array.reshape(-1) for p in solver.net.parameters]).tobytes())
    solver.close()
    return found


def assert_same_with_and_without_forms(monkeypatch: pytest.MonkeyPatch, run: Callable[[], list[bytes]]) -> None:
    found = []
    for small in (ALL, NONE):
        monkeypatch.setattr(forms, "SMALL", small)
        found.append(run())
    assert found[0] == found[1]


@pytest.mark.parametrize(("n", "numbers"), [("1", "bf16"), ("2", "bf16"), ("2", "float32")])
@pytest.mark.parametrize("fields", [{}, {"iter_size": 2}, {"clip_gradients": 0.1}], ids=str)
def test_updates(
    folder: Path, monkeypatch: pytest.MonkeyPatch, n: str, numbers: str, fields: dict[str, object]
) -> None:
    assert_same_with_and_without_forms(monkeypatch, lambda: train(folder, n=n, numbers=numbers, **fields))


@pytest.mark.parametrize("kind", solvers.kinds())
def test_rules(folder: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    momentum = 0.9 if kind in ("SGD", "Nesterov", "Adam", "LARS", "AdaDelta") else 0
    assert_same_with_and_without_forms(monkeypatch, lambda: train(folder, type=kind, momentum=momentum))


def kept(solver: Solver) -> Callable[[], object]:
    array = solver.net.params["ip1"][0].data
    return lambda: np.multiply(array, 1.5, out=array)


def flat(solver: Solver) -> Callable[[], object]:
    array = solver.net.packed.data
    return lambda: np.multiply(array, 1.5, out=array)


def flat_and_tested(solver: Solver) -> Callable[[], object]:
    array = solver.net.packed.data

    def write() -> None:
        np.multiply(array, 1.5, out=array)
        solver.test_all()
        np.multiply(array, 1.5, out=array)

    return write


def restored(solver: Solver) -> Callable[[], object]:
    path = solver.snapshot()
    return lambda: solver.restore(path)


def loaded(solver: Solver) -> Callable[[], object]:
    path = solver.snapshot().replace(".solverstate", ".caffemodel")
    return lambda: solver.copy_weights([path])


def alone(solver: Solver) -> Callable[[], object]:
    return lambda: (solver.net.forward(), np.multiply(solver.net.packed.data, 1.5, out=solver.net.packed.data))


def writing_layer(solver: Solver) -> None:
    """Have a layer of the train net write weights in each forward pass, through an array that is kept."""
    array, layer = solver.net.params["ip1"][0].data, solver.net.layer_dict["pool1"]
    forward = layer.forward

    def write(*blobs: object) -> None:
        forward(*blobs)  # type: ignore[arg-type]
        np.multiply(array, 1.25, out=array)

    layer.forward = write  # type: ignore[method-assign,assignment]


WAYS: dict[str, Between] = {
    "kept": kept,
    "flat": flat,
    "tests between writes": flat_and_tested,
    "restored": restored,
    "loaded": loaded,
    "a pass alone": alone,
}


@pytest.mark.parametrize("n", ["1", "2"])
@pytest.mark.parametrize("way", WAYS)
def test_writes_between_steps(folder: Path, monkeypatch: pytest.MonkeyPatch, way: str, n: str) -> None:
    given = {"test_iter": [2], "test_interval": 100}
    assert_same_with_and_without_forms(monkeypatch, lambda: train(folder, WAYS[way], n, **given))


def test_a_layer_that_writes_what_a_user_keeps(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run() -> list[bytes]:
        solver = make(folder, iter_size=2)
        array = solver.net.params["ip1"][0].data
        writing_layer(solver)
        solver.step(3)
        solver.close()
        return [array.tobytes(), solver.net.packed.host_data().tobytes()]

    assert_same_with_and_without_forms(monkeypatch, run)


def test_forms_are_made_once_for_all_passes_between_two_updates(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[tuple[int, int]] = []
    make_part = forms.SharedCopy._make

    def noted(copy: forms.SharedCopy, part: int) -> None:
        made.append((id(copy.form), part))
        make_part(copy, part)

    monkeypatch.setattr(forms, "SMALL", ALL)
    monkeypatch.setattr(forms.SharedCopy, "_make", noted)
    solver = make(folder, iter_size=3, test_iter=[4], test_interval=100)
    solver.step(2)
    assert {made.count(one) for one in made} == {2}  # once in each iteration
    made.clear()
    solver.test_all()
    assert made and len(set(made)) == len(made)
    solver.close()
