"""The numbers of a run are those of its log, of numpy, and of a run that was never stopped."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import nets
import numpy as np
import pytest
from conftest import environment
from event_files import all_events, curves
from prometheus_client.parser import text_string_to_metric_families
from strict_arrays import StrictGpu
from tensorboardX.proto.graph_pb2 import GraphDef

from scaffe.compute import Compute
from scaffe.errors import ScaffeError
from scaffe.monitor.event_file import EventFiles
from scaffe.monitor.log import log
from scaffe.monitor.watching import Watching
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.world import open_world
from scaffe.proto import SolverParameter
from scaffe.training.monitor import Monitor
from scaffe.training.solver import Solver

TIMES = "speed/", "reading/", "ranks/", "communication/"


@pytest.fixture
def make(images: Path, tmp_path: Path):
    """Return a function that makes a solver of fields, which writes its curves to tmp_path/runs."""
    made: list[Solver] = []

    def build(net: Callable[[Path], str] = nets.tower, watching: dict[str, Any] | None = None, **fields: Any) -> Solver:
        options = {key: fields.pop(key) for key in ("instances",) if key in fields}
        given = {"tensorboard": tmp_path / "runs"} if watching is None else watching
        param: SolverParameter = nets.solver_with(net(images), **fields)
        made.append(Solver(param, watching=Watching(**given), **options))
        return made[-1]

    yield build
    for solver in made:
        solver.close()


def without_times(folder: Path) -> dict[str, list[tuple[int, float]]]:
    return {tag: points for tag, points in curves(folder).items() if not tag.startswith(TIMES)}


def test_curves_are_the_numbers_of_the_log(make, tmp_path, images, monkeypatch) -> None:
    lines: list[str] = []
    monkeypatch.setattr(log, "info", lambda text, *given: lines.append(text % given))
    fields = {"display": 3, "max_iter": 9, "average_loss": 2, "test_interval": 4, "test_iter": [2]}
    solver = make(lambda db: nets.lenet(db, smooth=True), lr_policy="exp", gamma=0.9, **fields)
    solver.solve()
    solver.close()
    shown = curves(tmp_path / "runs")
    text = "\n".join(lines)
    losses = re.findall(r"^Iteration (\d+) ?(?:\(.*\))?, loss = (\S+)$", text, re.MULTILINE)[:3]
    assert [(int(step), loss) for step, loss in losses] == [(k, f"{v:.6g}") for k, v in shown["loss/smoothed"]]
    rates = re.findall(r"^Iteration (\d+), lr = (\S+)$", text, re.MULTILINE)
    assert [(int(step), rate) for step, rate in rates] == [(k, f"{v:.6g}") for k, v in shown["learning_rate"]]
    for kind, tag in (("Train", "train"), ("Test", "test_0")):
        for k, output in enumerate(("accuracy", "loss")):
            logged = re.findall(rf"{kind} net output #{k}: {output} = (\S+)", text)
            assert logged == [f"{value:.6g}" for _, value in shown[f"{tag}/{output}"]]
    assert [step for step, _ in shown["test_0/accuracy"]] == [0, 4, 8]
    assert [step for step, _ in shown["speed/images_per_second"]] == [3, 6]  # not of the first iteration alone


@pytest.mark.parametrize("iter_size", [1, 3])
def test_norms_are_those_of_the_steps_that_numpy_sees(make, tmp_path, iter_size: int) -> None:
    fields = {"momentum": 0.0, "weight_decay": 0.0, "base_lr": 0.5, "iter_size": iter_size}
    solver = make(watching={"tensorboard": tmp_path / "runs", "measure_every": 1}, **fields)
    expected: dict[str, list[float]] = {}
    for _ in range(3):
        before = {name: [blob.data.astype(np.float64) for blob in blobs] for name, blobs in solver.net.params.items()}
        solver.step(1)
        for name, blobs in solver.net.params.items():
            steps = [np.ravel(old - blob.data) for old, blob in zip(before[name], blobs, strict=True)]
            expected.setdefault(name, []).append(float(np.linalg.norm(np.concatenate(steps))))
    solver.close()
    shown = curves(tmp_path / "runs")
    del expected["ip4"]  # whose weights are ip2's, and its bias alone its own
    for name, norms in expected.items():
        np.testing.assert_allclose([v for _, v in shown[f"update_norm/{name}"]], norms, rtol=2e-4)
        np.testing.assert_allclose([v for _, v in shown[f"gradient_norm/{name}"]], np.array(norms) / 0.5, rtol=2e-4)


@pytest.mark.parametrize("type", ["SGD", "Adam", "LARS"])
def test_updates_with_a_history_are_what_was_subtracted(make, tmp_path, type: str) -> None:
    solver = make(watching={"tensorboard": tmp_path / "runs", "measure_every": 2}, type=type, momentum2=0.999)
    solver.step(2)
    before = [blob.data.astype(np.float64) for blob in solver.net.params["ip5"]]
    solver.step(1)
    steps = [np.ravel(old - blob.data) for old, blob in zip(before, solver.net.params["ip5"], strict=True)]
    solver.close()
    step, norm = curves(tmp_path / "runs")["update_norm/ip5"][-1]
    assert step == 2
    np.testing.assert_allclose(norm, np.linalg.norm(np.concatenate(steps)), rtol=2e-3)


def test_measuring_changes_no_bit(make) -> None:
    fields = {"display": 2, "max_iter": 7, "clip_gradients": 0.5}
    watched, plain = make(**fields), make(watching={}, **fields)
    for solver in (watched, plain):
        solver.solve()
    assert watched.net.packed.data.tobytes() == plain.net.packed.data.tobytes()


def test_a_resumed_run_goes_on_in_the_same_curves(make, tmp_path) -> None:
    fields = {"measure_every": 2}
    prefix = {"snapshot_prefix": str(tmp_path / "snap")}
    whole = make(watching={"tensorboard": tmp_path / "whole", **fields}, **prefix)
    whole.step(10)
    whole.close()
    first = make(watching={"tensorboard": tmp_path / "runs", **fields}, **prefix)
    first.step(5)
    state = first.snapshot()
    first.step(3)  # whose numbers the resumed run measures again
    first.close()
    second = make(watching={"tensorboard": tmp_path / "runs", **fields}, **prefix)
    second.restore(state)
    second.step(5)
    second.close()
    shown = without_times(tmp_path / "runs")
    assert [step for step, _ in shown["loss/iteration"]] == [0, 2, 4, 6, 8]
    assert shown == without_times(tmp_path / "whole")


def test_going_back_in_one_solver_replaces_what_follows(make, tmp_path) -> None:
    solver = make(watching={"tensorboard": tmp_path / "runs", "measure_every": 1}, snapshot_prefix=str(tmp_path / "s"))
    solver.step(2)
    state = solver.snapshot()
    solver.step(3)
    solver.restore(state)
    solver.step(2)
    solver.close()
    assert [step for step, _ in curves(tmp_path / "runs")["learning_rate"]] == [0, 1, 2, 3]


def test_a_test_before_the_first_step_goes_on_in_the_curves(make, tmp_path) -> None:
    fields = {"snapshot_prefix": str(tmp_path / "s"), "test_interval": 50, "test_iter": [1]}
    watching = {"tensorboard": tmp_path / "runs", "measure_every": 1}
    first = make(watching=watching, test_initialization=False, **fields)
    first.step(2)
    state = first.snapshot()
    first.step(3)
    first.close()
    second = make(watching=watching, test_initialization=False, **fields)
    second.restore(state)
    second.test_all()
    second.step(2)
    second.close()
    shown = curves(tmp_path / "runs")
    assert [step for step, _ in shown["test_0/loss"]] == [2]
    assert [step for step, _ in shown["loss/iteration"]] == [0, 1, 2, 3]
    assert [step for step, _ in shown["speed/iteration_seconds"]] == [1, 3]  # not of the iterations that set up


def test_a_solver_that_could_not_be_made_leaves_the_folder_to_the_next(make) -> None:
    with pytest.raises(ScaffeError, match="unknown type") as kept:
        make(lambda db: nets.tower(db).replace("TanH", "Tan"))
    make()
    assert kept.value  # which holds the solver, as a notebook does


def test_steps_of_a_notebook_are_one_run(make, tmp_path) -> None:
    solver = make(watching={"metrics": tmp_path / "run.prom", "tensorboard": tmp_path / "runs", "measure_every": 4})
    for _ in range(3):
        solver.step(3)
    solver.close()
    values = metrics(tmp_path / "run.prom")
    assert values["scaffe_images_total"] == 12 * 9 and values["scaffe_iteration"] == 8
    assert [step for step, _ in curves(tmp_path / "runs")["speed/images_per_second"]] == [4, 8]
    starts = [event.step for event in all_events(tmp_path / "runs") if event.session_log.status]
    assert starts == [0]


def test_metrics_are_the_last_points_of_the_curves(make, tmp_path) -> None:
    solver = make(watching={"metrics": tmp_path / "run.prom", "tensorboard": tmp_path / "runs", "measure_every": 2})
    solver.step(5)
    solver.close()
    values, shown = metrics(tmp_path / "run.prom"), curves(tmp_path / "runs")
    for name, tag in (
        ("loss", "loss/smoothed"),
        ("learning_rate", "learning_rate"),
        ("iteration_loss", "loss/iteration"),
    ):
        assert np.float32(values[f"scaffe_{name}"]) == np.float32(shown[tag][-1][1])
    assert values["scaffe_train_output"] == values["scaffe_iteration_loss"]


def metrics(path: Path) -> dict[str, float]:
    """Return the last value of each metric by its name."""
    families = text_string_to_metric_families(path.read_text())
    return {sample.name: sample.value for family in families for sample in family.samples}


def test_images_are_those_of_all_passes_and_tests_take_no_time_of_training(make, tmp_path, monkeypatch) -> None:
    now = [0.0]
    monkeypatch.setattr("scaffe.training.monitor.perf_counter", lambda: now[0])
    watching = {"metrics": tmp_path / "run.prom", "measure_every": 2}
    solver = make(watching=watching, iter_size=3, test_interval=1, test_iter=[1], test_initialization=False)
    test_all, iterate = solver.test_all, solver._iterate
    monkeypatch.setattr(solver, "test_all", lambda: (test_all(), now.append(now.pop() + 100)))
    monkeypatch.setattr(solver, "_iterate", lambda ends: (iterate(ends=ends), now.append(now.pop() + 2)))
    solver.step(5)
    solver.close()
    values = metrics(tmp_path / "run.prom")
    assert values["scaffe_images_total"] == 12 * 3 * 5
    assert values["scaffe_iteration_seconds"] == 2 and values["scaffe_images_per_second"] == 12 * 3 / 2


def test_counters_never_fall(make, tmp_path) -> None:
    solver = make(watching={"metrics": tmp_path / "run.prom", "measure_every": 1})
    seen = []
    write = solver.monitor._writing._writers[0].write
    solver.monitor._writing._writers[0].write = lambda numbers: (
        write(numbers) or seen.append(metrics(tmp_path / "run.prom")["scaffe_images_total"])
    )
    solver.step(6)
    solver.close()
    assert seen == sorted(seen) and seen[-1] == 72


@pytest.mark.parametrize(
    ("display", "every", "steps"), [(3, 0, [0, 3, 6]), (3, 4, [0, 4]), (0, 0, [0]), (0, 5, [0, 5])]
)
def test_the_interval_is_the_display_or_its_own(make, tmp_path, display: int, every: int, steps: list[int]) -> None:
    watching = {"tensorboard": tmp_path / "runs", "measure_every": every}
    solver = make(nets.softmax_regression, watching, display=display)
    solver.step(8)
    solver.close()
    assert [step for step, _ in curves(tmp_path / "runs")["loss/iteration"]] == steps


def test_instances_have_the_numbers_of_one(make, tmp_path) -> None:
    shown = []
    for n in ("1", "2"):
        folder = tmp_path / n
        instances = Instances(n=n, oversubscribe=True)
        solver = make(watching={"tensorboard": folder, "measure_every": 1}, instances=instances)
        solver.step(1)
        solver.close()
        shown.append(without_times(folder))
    one, two = shown
    assert one.keys() == two.keys() and "gradient_norm/ip1" in one
    for tag, points in one.items():
        np.testing.assert_allclose(two[tag], points, rtol=1e-4)


def test_a_devices_numbers_are_the_hosts(images, tmp_path) -> None:
    world, shown = open_world(), []
    for name, gpu in (("host", None), ("device", StrictGpu())):
        world.take_gpu(gpu)
        watching = Watching(tensorboard=tmp_path / name, metrics=tmp_path / f"{name}.prom", measure_every=2)
        compute = Compute(engine="auto" if gpu else "reference")
        solver = Solver(nets.solver_with(nets.lenet(images, 3, smooth=True)), compute=compute, watching=watching)
        world.take_gpu(None)
        solver.step(3)
        solver.close()
        shown.append(without_times(tmp_path / name))
    host, device = shown
    assert host.keys() == device.keys() and "update_norm/conv1" in host
    for tag, points in host.items():
        np.testing.assert_allclose(device[tag], points, rtol=1e-4, err_msg=tag)


def test_what_a_run_is_stands_as_texts_graph_and_pictures(make, tmp_path) -> None:
    solver = make(nets.lenet, max_iter=7)
    solver.step(1)
    solver.close()
    values = [value for event in all_events(tmp_path / "runs") for value in event.summary.value]
    texts = {v.tag: v.tensor.string_val[0].decode() for v in values if v.WhichOneof("value") == "tensor"}
    assert "    max_iter: 7\n" in texts["about/solver/text_summary"]
    assert "Split" not in texts["about/net/text_summary"] and "Convolution" in texts["about/net/text_summary"]
    assert "    run.workflow = 'SC-B'\n" in texts["about/settings/text_summary"]
    assert "rank 0" in texts["about/ranks/text_summary"] and "numpy" in texts["about/versions/text_summary"]
    pictures = {v.tag for v in values if v.WhichOneof("value") == "image"}
    assert "filters/conv1" in pictures
    (graph,) = [GraphDef.FromString(event.graph_def) for event in all_events(tmp_path / "runs") if event.graph_def]
    inputs = {node.name: list(node.input) for node in graph.node}
    assert inputs["conv2"] == ["pool1"] and inputs["loss"] == ["ip2", "digits"]  # without the layers Split


def test_without_graphviz_all_but_the_drawing_is_written(make, tmp_path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "graphviz", None)
    solver = make(nets.lenet)
    solver.step(1)
    solver.close()
    values = [value for event in all_events(tmp_path / "runs") for value in event.summary.value]
    assert {v.tag for v in values if v.WhichOneof("value") == "image"} == {"filters/conv1"}
    assert "loss/smoothed" in curves(tmp_path / "runs")


def test_two_solvers_can_not_write_to_one_folder(make) -> None:
    make()
    with pytest.raises(ScaffeError, match="another run writes there"):
        make()


def test_two_solvers_can_not_write_one_file_of_metrics(make, tmp_path) -> None:
    shared, free = tmp_path / "run.prom", tmp_path / "other.prom"
    kept = make(watching={"metrics": shared, "tensorboard": tmp_path / "runs"})
    with pytest.raises(ScaffeError, match="metrics '.*run.prom': another run, or a solver that is not closed, writes"):
        make(watching={"metrics": shared})
    with pytest.raises(ScaffeError, match="tensorboard '.*runs': another run writes there"):
        make(watching={"metrics": free, "tensorboard": tmp_path / "runs"})
    make(watching={"metrics": free}).close()  # which the refused one has left
    kept.close()
    make(watching={"metrics": shared}).close()


TRAINING = """
import sys
from scaffe.cli import main
sys.exit(main(sys.argv[1:]))
"""


def train(folder: Path, program: str, *flags: str, **fields: Any) -> subprocess.CompletedProcess[str]:
    """Train in a process of its own."""
    if not (folder / "db").exists():
        nets.write_images(folder / "db")
    solver = nets.write_solver(folder, nets.tower(folder / "db"), **fields)
    command = [sys.executable, "-c", program, "train", "--solver", str(solver), *flags]
    return subprocess.run(command, capture_output=True, text=True, timeout=900, env=environment(), cwd=folder)


def test_a_run_without_writers_imports_none(tmp_path: Path) -> None:
    program = TRAINING.replace("sys.exit(main(sys.argv[1:]))", "main(sys.argv[1:]); print(*sys.modules)")
    run = train(tmp_path, program, max_iter=2)
    names = set(run.stdout.split())
    assert "scaffe.training.solver" in names
    assert not {"tensorboardX", "prometheus_client", "scaffe.monitor.event_file", "scaffe.monitor.prometheus"} & names


FULL = """
import resource, sys
from scaffe.cli import main
from scaffe.parallel.world import open_world

open_world()  # MPI writes files of its own
sys.dont_write_bytecode = True  # a file that is cut would be the other processes'
resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))
sys.exit(main(sys.argv[1:]))
"""


def test_a_full_disk_ends_no_training(tmp_path: Path) -> None:
    run = train(tmp_path, FULL, "--tensorboard", "runs", "--metrics", "run.prom", "--measure-every", "1", max_iter=9)
    assert run.returncode == 0 and "Optimization Done." in run.stderr
    warnings = [line for line in run.stderr.splitlines() if line.startswith("W") and "are lost" in line]
    assert len([line for line in warnings if "tensorboard 'runs'" in line and "file too large" in line]) == 1
    assert len(warnings) <= 2
    all_events(tmp_path / "runs")  # whole records alone


KILLED = """
import os, signal, sys
from scaffe.cli import main
from scaffe.training.solver import Solver

iterate = Solver._iterate
def killed(self, ends):
    if self.iter == 40:
        os.kill(os.getpid(), signal.SIGKILL)
    iterate(self, ends)
Solver._iterate = killed
sys.exit(main(sys.argv[1:]))
"""


def test_a_killed_run_leaves_files_that_a_new_one_goes_on_with(tmp_path: Path) -> None:
    flags = "--tensorboard", "runs", "--measure-every", "1"
    run = train(tmp_path, KILLED, *flags, max_iter=50)
    assert run.returncode == -signal.SIGKILL
    all_events(tmp_path / "runs")
    assert train(tmp_path, TRAINING, *flags, max_iter=3).returncode == 0
    assert [step for step, _ in curves(tmp_path / "runs")["loss/iteration"]] == [0, 1, 2]


def test_the_next_root_takes_over_the_images_and_waits_for_the_files(tmp_path, monkeypatch):
    monkeypatch.setattr(Monitor, "go_on", lambda self, solver: None)
    world = SimpleNamespace(is_root=True, host="vm", allgather=lambda images: [images, 640])
    solver: Any = SimpleNamespace(job=SimpleNamespace(world=world, iter=7))
    earlier = EventFiles(tmp_path)
    monitor = Monitor(1, Watching(tensorboard=tmp_path))
    monitor.follow_root(solver)  # raises nothing, though the lost root's process still holds the folder
    assert monitor._writing is not None and monitor._images == 640
    world.is_root = False
    monitor.follow_root(solver)
    assert monitor._writing is None
    earlier.close()
