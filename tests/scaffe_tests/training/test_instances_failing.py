"""An error in one of several instances ends the iteration of all, with the instance's number; the solver can go on."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Callable
from pathlib import Path

import bad_input
import pytest

from readers import BatchReader, Reading
from scaffe import solvers
from scaffe.cli import main
from scaffe.errors import DivergedError, ScaffeError, notes
from scaffe.net.net import Net
from scaffe.parallel.instances import gradient_sums
from scaffe.parallel.instances.drive import CrewDrive
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.parallel.world import open_world
from scaffe.proto import Datum
from scaffe.solvers.rule import Rule
from scaffe.training.nets import NetBuilder
from scaffe.training.solver import Solver

pytestmark = pytest.mark.mpi_skip
SIZE = 3
GIVEN = Instances(SIZE, gather="slices", oversubscribe=True)
FLAGS = "--instances", SIZE, "--oversubscribe"
PHASES = {
    "build": (NetBuilder, "_train_net"),
    "forward": (Net, "forward_layer"),
    "backward": (Net, "backward_layer"),
    "gather": (gradient_sums, "add"),
    "update": (Rule, "update"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    open_world()  # which starts the log
    return bad_input.trainable(tmp_path, monkeypatch)


def failing(work: Callable, threads: list[str]) -> Callable:
    """Return a function that does the work, but raises in these threads."""

    def fail(*given):
        if (thread := threading.current_thread().name) in threads:
            raise RuntimeError(f"a defect in {thread} of {SIZE}")
        return work(*given)

    return fail


def breaking(monkeypatch, phase: str, threads: list[str]) -> None:
    """Make a phase raise in these threads."""
    owner, name = PHASES[phase]
    monkeypatch.setattr(owner, name, failing(getattr(owner, name), threads))


@pytest.mark.parametrize("instance", range(SIZE))
@pytest.mark.parametrize("phase", ["forward", "backward", "gather"])
def test_an_error_of_an_instance_is_raised_with_its_number(folder, phase, instance) -> None:
    solver = Solver("solver.prototxt", instances=GIVEN)
    with pytest.MonkeyPatch.context() as broken:
        breaking(broken, phase, [f"instance {instance}"])
        with pytest.raises(RuntimeError, match=f"a defect in instance {instance} of {SIZE}") as caught:
            solver.step(1)
    assert notes(caught.value) == [f"instance {instance} of {SIZE}"]
    solver.step(2)
    assert solver.iter == 2
    solver.close()


def test_an_error_of_an_update_is_raised_with_the_number_of_the_instance_whose_thread_does_it(folder) -> None:
    solver, begun = Solver("solver.prototxt", instances=GIVEN), threading.Event()
    begin, add = Workflow.begin, gradient_sums.add

    def add_later(*given) -> None:  # what is summed before `begin` is updated by the main thread
        begun.wait()
        add(*given)

    with pytest.MonkeyPatch.context() as broken:
        broken.setattr(Workflow, "begin", lambda workflow: (begin(workflow), begun.set()))
        broken.setattr(gradient_sums, "add", add_later)
        breaking(broken, "update", [f"instance {i}" for i in range(SIZE)])
        with pytest.raises(RuntimeError) as caught:
            solver.step(1)
    [note] = notes(caught.value)
    assert str(caught.value) == f"a defect in {note}"
    solver.close()


@pytest.mark.parametrize("instance", range(SIZE))
def test_an_error_while_a_net_is_built_has_the_instances_number(folder, monkeypatch, instance) -> None:
    breaking(monkeypatch, "build", [f"instance {instance}"])
    with pytest.raises(RuntimeError) as caught:
        Solver("solver.prototxt", instances=GIVEN)
    assert notes(caught.value) == [f"instance {instance} of {SIZE}"]


def test_a_solver_that_can_not_be_built_leaves_no_thread(folder, monkeypatch) -> None:
    def refuse(*given):
        raise ScaffeError("no such solver")

    before = {*threading.enumerate()}
    monkeypatch.setattr(solvers, "create", refuse)
    with pytest.raises(ScaffeError, match="no such solver"):
        Solver("solver.prototxt", instances=GIVEN)
    assert {*threading.enumerate()} <= before


def test_what_is_wrong_with_all_nets_is_no_instances_error(folder, capsys) -> None:
    bad_input.edit("net.prototxt", "batch_size: 8", "batch_size: 2")
    told = bad_input.Refused(folder, capsys)(*bad_input.train(*FLAGS))
    assert told.startswith("scaffe: layer 'images': 3 instances for a batch of 2 samples")


def test_the_command_line_names_the_instance_before_the_traceback(folder, capsys, monkeypatch) -> None:
    breaking(monkeypatch, "backward", ["instance 1"])
    assert main(list(map(str, bad_input.train(*FLAGS)))) == 1
    told = capsys.readouterr().err
    assert f"scaffe: instance 1 of {SIZE}: Traceback (most recent call last):" in told
    assert told.count("RuntimeError: a defect") == 1 and 'test_instances_failing.py", line' in told


def test_a_bad_record_is_one_line_with_the_instance_that_read_it(folder, capsys) -> None:
    # Each batch has 8 records, of which instance 2 reads 5 to 7.
    bad_input.write_records(*[bad_input.grey(5 if i == 7 else 4) for i in range(16)])
    assert main(list(map(str, bad_input.train(*FLAGS)))) == 2
    told = bad_input.the_error(capsys.readouterr().err)
    assert told.startswith("scaffe: instance 2 of 3: db: record '00000007' is 1 x 5 x 5, but")


def test_a_reader_thread_that_dies_ends_all(folder, monkeypatch) -> None:
    fill = BatchReader.fill

    def die(reader, number, batch):
        if reader.shard.start == 2:
            raise RuntimeError("a defect of the reader")
        fill(reader, number, batch)

    monkeypatch.setattr(BatchReader, "fill", die)
    solver = Solver("solver.prototxt", instances=GIVEN)
    with pytest.raises(RuntimeError, match="a defect of the reader") as caught:
        solver.step(1)
    assert notes(caught.value) == [f"instance 1 of {SIZE}"]
    solver.close()


def test_a_loss_that_is_not_finite_in_one_instance_names_its_layer(folder) -> None:
    # Instance 1 reads records 2 to 4 of each batch.
    bad = Datum(channels=1, height=4, width=4, float_data=[float("inf")] * 16).SerializeToString()
    bad_input.write_records(*[bad if i == 3 else bad_input.grey() for i in range(16)])
    solver = Solver("solver.prototxt", instances=GIVEN)
    before = solver.net.packed.data.tobytes()
    with pytest.raises(DivergedError, match="^layer 'loss': the loss is not finite at iteration 0") as caught:
        solver.step(1)
    assert notes(caught.value) == [] and solver.net.packed.data.tobytes() == before
    solver.close()


def test_bad_records_of_all_instances_are_counted_and_told(folder, caplog) -> None:
    bad_input.write_records(*[bad_input.grey(5 if i in (1, 6, 11) else 4) for i in range(16)])
    reading = Reading(bad_records="skip", max_bad_records=0.5)
    solver = Solver("solver.prototxt", instances=GIVEN, reading=reading)
    with caplog.at_level(logging.INFO, "scaffe"):
        solver.solve()
    solver.close()
    told = [entry.getMessage() for entry in caplog.records if "ad record" in entry.getMessage()]
    assert [line for line in told if line.startswith("layer 'images': passed over a bad record: db: record")]
    counts = [int(one) for one in re.findall(r"\d+", told[-1])]
    read = sum(layer.records_read for net in solver.nets for layer in net.data_layers())
    bad = sum(layer.bad_read for net in solver.nets for layer in net.data_layers())
    assert counts[:2] == [bad, read] and bad >= 6 and told[-1].startswith("Bad records: ")


def positions(solver: Solver) -> list[tuple[int, int]]:
    return [(net.context.batch_number, layer.position) for net in solver.nets for layer in net.data_layers()]


def test_the_first_net_can_be_run_alone_and_the_others_go_on_where_it_is(folder) -> None:
    bad_input.edit("net.prototxt", 'top: "loss"', 'top: "loss" loss_param { ignore_label: 3 }')
    solver = Solver("solver.prototxt", instances=GIVEN)
    solver.parts.team.break_off(RuntimeError("it waits for another instance"))  # which ends a wait
    solver.net.forward()
    solver.step(1)
    assert positions(solver) == [(2, 16)] * SIZE
    solver.close()


def test_instances_read_the_same_batch_after_an_error_of_one(folder) -> None:
    solver = Solver("solver.prototxt", instances=GIVEN)
    with pytest.MonkeyPatch.context() as broken:
        breaking(broken, "forward", ["instance 1"])
        with pytest.raises(RuntimeError, match="a defect"):
            solver.step(1)
    solver.step(1)
    assert len(set(positions(solver))) == 1
    solver.close()


def errors(solver: Solver) -> list[BaseException | None]:
    """Return what ends the waits of instances for messages, gradients and joined numbers."""
    workflow, drive = solver.parts.workflow, solver.parts.workflow.drive
    assert workflow.instance_sums is not None and isinstance(drive, CrewDrive)
    return [drive._stop, workflow.instance_sums.sums._error, solver.parts.team.joined._error]


def test_an_error_ends_waits_of_all_kinds_until_the_next_iteration(folder) -> None:
    solver, error = Solver("solver.prototxt", instances=GIVEN), RuntimeError("an instance has failed")
    solver.parts.team.break_off(error)
    assert errors(solver) == [error] * 3
    solver.step(1)
    assert errors(solver) == [None] * 3
    solver.close()


def test_a_team_takes_another_delay_and_forgets_closed_workflows(folder) -> None:
    solver = Solver("solver.prototxt", instances=GIVEN)
    solver.parts.team.arrange(Instances(SIZE, launch_delay="0.25", oversubscribe=True))
    assert solver.parts.team.crew is not None and solver.parts.team.crew.delay == 0.25
    assert solver.parts.team.breaks == [solver.parts.team.joined.break_off]
    solver.close()
