"""Snapshots: which one is gone on from, which are removed, and what a death in the middle of one leaves."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import nets
import numpy as np
import pytest
from conftest import environment
from unsealed import unseal

import scaffe
from scaffe.errors import DivergedError, SnapshotError
from scaffe.files import snapshot
from scaffe.files.states import states
from scaffe.parallel.run import Run
from scaffe.proto import NetParameter, SolverParameter, SolverState, blobs
from scaffe.proto.files import read_solver_state
from scaffe.training.solver import Solver

FORMATS = [SolverParameter.BINARYPROTO, SolverParameter.HDF5]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    """The working directory, with a database to train on."""
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    return tmp_path


@pytest.fixture
def solver():
    """Make solvers of a small net, with the prefix 'snap'."""
    made = []

    def make(keep=0, outputs=10, **fields):
        net = nets.softmax_regression("db", outputs=outputs)
        param = nets.solver_with(net, **{"snapshot_prefix": "snap", **fields})
        made.append(Solver(param, run=Run(keep_snapshots=keep)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def taken(solver, *iterations):
    """Train on to each of the iterations and take a snapshot there."""
    for iteration in iterations:
        solver.step(iteration - solver.iter)
        solver.snapshot()
    return solver


def found():
    """Return the iterations of the files there are."""
    return {kind: sorted(iterations_of(kind)) for kind in ("caffemodel", "solverstate")}


def iterations_of(kind):
    return (int(match[1]) for name in os.listdir() if (match := re.fullmatch(rf"snap_iter_(\d+)\.{kind}", name)))


def both(*iterations):
    return {"caffemodel": list(iterations), "solverstate": list(iterations)}


def resumed(solver):
    solver.restore("auto")
    return solver.iter


# What "auto" takes.


def test_auto_starts_anew_where_there_is_no_snapshot(solver):
    fresh = solver()
    before = fresh.net.packed.data.copy()
    assert resumed(fresh) == 0
    assert np.array_equal(fresh.net.packed.data, before)


def test_auto_starts_anew_where_a_job_was_killed_in_its_first_snapshot(solver):
    taken(solver(), 2)
    os.rename("snap_iter_2.solverstate", "snap_iter_2.solverstate.0123456789abcdef.tmp")
    assert resumed(solver()) == 0
    os.rename("snap_iter_2.caffemodel", "snap_iter_2.caffemodel.0123456789abcdef.tmp")
    assert resumed(solver()) == 0


def cut(path):
    os.truncate(path, os.path.getsize(path) // 2)


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("damage", [cut, os.unlink])
def test_auto_refuses_to_start_anew_where_no_snapshot_is_whole(solver, capsys, form, damage):
    taken(solver(snapshot_format=form), 2, 4)
    [older], [newer] = Path().glob("snap_iter_2.caffemodel*"), Path().glob("snap_iter_4.caffemodel*")
    state = str(newer).replace("caffemodel", "solverstate")
    damage(older)
    damage(newer)
    second = solver()
    with pytest.raises(SnapshotError) as error:
        second.restore("auto")
    assert str(error.value) == (
        f"snapshot_prefix 'snap': there are snapshots, but none is whole (newest: {state}): "
        "copy one anew; or, to start anew, remove them or choose another snapshot_prefix"
    )
    warned = capsys.readouterr().err
    assert warned.count("Passing over a snapshot") == 2 and str(older) in warned and str(newer) in warned
    assert snapshot.newest("snap", second.job.origin.run) is None  # for reports, which tell of another error


def test_auto_takes_the_newest_by_number_not_by_name(solver):
    first = taken(solver(), 9, 10)
    second = solver()
    assert resumed(second) == 10
    assert np.array_equal(second.net.packed.data, first.net.packed.data)


def test_auto_passes_over_weights_without_a_state_and_a_state_without_weights(solver):
    taken(solver(), 2, 4, 6)
    os.unlink("snap_iter_6.solverstate")
    os.unlink("snap_iter_4.caffemodel")
    assert resumed(solver()) == 2


@pytest.mark.parametrize("part", [0, 0.5, 0.99])
@pytest.mark.parametrize("kind", ["solverstate", "caffemodel"])
def test_auto_passes_over_a_snapshot_with_a_truncated_file_and_says_so(solver, capsys, kind, part):
    taken(solver(), 2, 4)
    os.truncate(f"snap_iter_4.{kind}", int(os.path.getsize(f"snap_iter_4.{kind}") * part))
    assert resumed(solver()) == 2
    assert f"Passing over a snapshot: snap_iter_4.{kind}" in capsys.readouterr().err


@pytest.mark.parametrize("form", FORMATS)
def test_auto_passes_over_weights_in_which_a_bit_has_flipped(solver, capsys, form):
    first = taken(solver(snapshot_format=form), 2)
    expected = first.net.packed.data.copy()
    taken(first, 4)
    [path] = Path().glob("snap_iter_4.caffemodel*")
    content = bytearray(path.read_bytes())
    content[content.index(first.net.params["ip"][0].data.tobytes()) + 5] ^= 4
    path.write_bytes(content)
    second = solver()
    assert resumed(second) == 2
    assert np.array_equal(second.net.packed.data, expected)
    assert f"Passing over a snapshot: {path}: damaged" in capsys.readouterr().err


def test_a_run_from_another_prefix_is_one_more_of_this_prefix(solver):
    taken(solver(snapshot_prefix="other"), 2)
    taken(solver(), 1, 3)
    third = solver(1)
    third.restore("other_iter_2.solverstate")
    taken(third, 4, 5)
    assert found() == both(1, 3, 5)  # it removes none of the first run's


def test_auto_takes_none_of_another_prefix(solver):
    taken(solver(), 2)
    for kind in ("caffemodel", "solverstate"):
        Path(f"snapshot_iter_8.{kind}").write_bytes(Path(f"snap_iter_2.{kind}").read_bytes())
        Path(f"snap_iter_8b.{kind}").write_bytes(b"")
        Path(f"snap_iter_2_more_iter_8.{kind}").write_bytes(Path(f"snap_iter_2.{kind}").read_bytes())
    assert resumed(solver()) == 2


@pytest.mark.parametrize("form", FORMATS)
def test_auto_takes_what_was_written_last_not_the_highest_number(solver, capsys, form):
    older = taken(solver(snapshot_format=form), 4, 16)
    newer = taken(solver(snapshot_format=form), 8)
    for path in Path().glob("snap_iter_16.*"):
        os.utime(path, (4e9, 4e9))  # another host's clock
    assert "1 snapshot(s) of other runs" not in capsys.readouterr().err
    third = solver(snapshot_format=form)
    assert resumed(third) == 8
    assert np.array_equal(third.net.packed.data, newer.net.packed.data)
    assert (older.job.origin.run, newer.job.origin.run, third.job.origin.run) == (1, 2, 2)
    [said] = [line for line in capsys.readouterr().err.splitlines() if "written last" in line]
    assert "2 snapshot(s) of other runs, up to iteration 16; to go on with one of them, give --snapshot" in said
    taken(third, 12)  # by a resumed run
    assert resumed(solver(snapshot_format=form)) == 12


def test_a_run_that_begins_under_a_prefix_of_snapshots_says_so_once(solver, capsys):
    taken(solver(), 4)
    assert "of other runs" not in capsys.readouterr().err
    taken(solver(), 2, 6)
    said = capsys.readouterr().err
    assert said.count("snapshot_prefix 'snap': 1 snapshot(s) of other runs are there, up to iteration 4") == 1


def test_an_error_names_the_newest_snapshot_of_its_own_run(solver):
    taken(solver(), 9)
    with pytest.raises(DivergedError, match="newest snapshot: none$"):
        solver(base_lr=1e38).step(8)
    one = taken(solver(), 2)
    one.param.base_lr = 1e38
    with pytest.raises(DivergedError, match="newest snapshot: snap_iter_2.solverstate$"):
        one.step(8)


def test_auto_takes_the_last_one_of_a_run_that_was_set_back(solver, capsys):
    one = taken(solver(), 2, 4, 8)
    one.restore("snap_iter_2.solverstate")
    taken(one, 6)
    capsys.readouterr()
    assert resumed(solver()) == 6
    assert "of other runs" not in capsys.readouterr().err


def test_files_without_a_record_come_before_all_others_by_their_numbers(solver, capsys):
    taken(solver(), 2, 4, 6)
    for iteration in (2, 6):
        state = read_solver_state(f"snap_iter_{iteration}.solverstate")
        for field in ("run", "order", "weights_checksum", "sealed", "checksum"):
            state.ClearField(field)  # as of Caffe
        Path(f"snap_iter_{iteration}.solverstate").write_bytes(state.SerializeToString())
    assert resumed(solver()) == 4
    assert "1 snapshot(s) of other runs, up to iteration 6" in capsys.readouterr().err
    os.unlink("snap_iter_4.solverstate")
    third = solver()
    assert resumed(third) == 6
    taken(third, 8)
    capsys.readouterr()
    assert resumed(solver()) == 8
    assert "of other runs" not in capsys.readouterr().err  # it began at 6


@pytest.mark.parametrize("form", FORMATS)
def test_a_kill_between_new_weights_and_their_state_mixes_no_two_runs(solver, capsys, form):
    taken(solver(snapshot_format=form), 2, 4)
    second = solver(snapshot_format=form, base_lr=0.5)
    taken(second, 4)
    [state], [weights] = Path().glob("snap_iter_4.solverstate*"), Path().glob("snap_iter_4.caffemodel*")
    new = weights.read_bytes()
    for path in (state, weights):
        path.unlink()
    first = solver(snapshot_format=form)
    first.restore(f"snap_iter_2.solverstate{'.h5' * (form == SolverParameter.HDF5)}")
    taken(first, 4)
    weights.write_bytes(new)  # what a run that replaces them leaves, killed before it writes their state
    capsys.readouterr()
    assert resumed(solver(snapshot_format=form)) == 2
    assert f"Passing over a snapshot: {state}: its weights {weights} are others" in capsys.readouterr().err
    asked_for = solver(snapshot_format=form)
    asked_for.restore(state)  # the user may have changed them
    assert asked_for.iter == 4
    assert f"{state}: its weights {weights} are others" in capsys.readouterr().err


def test_the_order_is_read_without_reading_the_history(solver):
    taken(solver(), 2)
    path = "snap_iter_2.solverstate"
    expected = states("snap")
    with open(path, "rb") as file:
        read, real = 0, file.read

        def counted(size=-1):
            nonlocal read
            read += size if size >= 0 else 1 << 40
            return real(size)

        counting = SimpleNamespace(read=counted, seek=file.seek, tell=file.tell, fileno=file.fileno)
        numbers = (SolverState.RUN_FIELD_NUMBER, SolverState.ORDER_FIELD_NUMBER)
        blobs.read_fields(counting, numbers)
    assert read < 100 < os.path.getsize(path) and expected[0].origin == (1, 1)
    os.truncate(path, 100)  # the history is missing, the order is not
    assert states("snap") == expected


def test_weights_are_found_beside_a_state_that_was_moved(solver, folder):
    first = taken(solver(), 2)
    (folder / "elsewhere").mkdir()
    for path in folder.glob("snap_iter_2.*"):
        path.rename(folder / "elsewhere" / path.name)
    second = solver()
    (folder / "snap_iter_2.caffemodel").write_bytes(b"another's, where the state says")
    second.restore("elsewhere/snap_iter_2.solverstate")
    assert np.array_equal(second.net.packed.data, first.net.packed.data)


# One job writes at a time.


def test_a_prefix_is_locked_from_the_first_iteration_to_close(solver):
    one, two = solver(snapshot=5), solver(snapshot=5)
    assert not os.path.exists("snap.lock")
    one.step(1)
    two.step(1)  # another of the same process
    assert os.path.exists("snap.lock")
    one.close()
    assert os.path.exists("snap.lock")
    two.close()
    assert not os.path.exists("snap.lock")


def test_a_prefix_of_which_no_snapshot_is_taken_is_not_locked(solver):
    one = solver()
    one.step(1)
    assert not os.path.exists("snap.lock")
    one.snapshot()
    assert os.path.exists("snap.lock")


def test_a_job_whose_prefix_was_taken_over_writes_no_snapshot(solver):
    one = taken(solver(), 2)
    nets.lock_of_a_running_job("snap")
    one.step(2)
    with pytest.raises(SnapshotError, match="has taken over its lock while this job was stopped; nothing is written"):
        one.snapshot()
    assert found() == both(2)


# What is removed.


def test_all_snapshots_are_kept_by_default(solver):
    taken(solver(), 1, 2, 3)
    assert found() == both(1, 2, 3)


@pytest.mark.parametrize("keep", [1, 2, 5])
def test_the_newest_ones_are_kept(solver, keep):
    taken(solver(keep), 1, 2, 3, 10)
    assert found() == both(*[1, 2, 3, 10][-keep:])


def test_a_state_is_removed_before_its_weights(solver, monkeypatch):
    one, removed, unlink = taken(solver(1), 1), [], os.unlink
    monkeypatch.setattr(os, "unlink", lambda path: (removed.append(path), unlink(path)))
    taken(one, 2)  # killed in between it leaves weights without a state, which nobody takes for a snapshot
    assert removed == ["snap_iter_1.solverstate", "snap_iter_1.caffemodel"]


def test_incomplete_snapshots_and_other_files_are_not_removed(solver):
    one = taken(solver(1), 1)
    os.unlink("snap_iter_1.solverstate")
    Path("snap_iter_0.solverstate").write_bytes(b"")
    taken(one, 2, 5)
    assert found() == {"caffemodel": [1, 5], "solverstate": [0, 5]}


def test_those_of_another_run_are_not_removed(solver):
    taken(solver(), 1, 8, 9)
    taken(solver(1), 2, 4)
    assert found() == both(1, 4, 8, 9)


def test_those_of_the_run_that_is_gone_on_with_are_removed(solver):
    taken(solver(), 1, 8)
    second = solver(1)
    second.restore("auto")
    taken(second, 9)
    assert found() == both(9)


# A process that dies while it writes: the kernel ends it in the middle of a write, at a byte of our choice.

DIES = """
import logging, resource, signal, sys, scaffe
from scaffe.monitor.log import log
solver = scaffe.get_solver("solver.prototxt")
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)

def limit(record):
    if record.getMessage().endswith(sys.argv[1]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
    return True

log.addFilter(limit)
solver.solve()
"""


@pytest.mark.parametrize(("dying", "left"), [("iter_4.caffemodel", [2]), ("iter_4.solverstate", [2, 4])])
def test_a_run_that_dies_while_writing_leaves_the_older_snapshot(folder, solver, dying, left):
    net = nets.softmax_regression("db", outputs=4096)
    nets.write_solver(folder, net, snapshot=2, max_iter=6, snapshot_prefix="snap")
    run = subprocess.run([sys.executable, "-c", DIES, dying], env=environment(), capture_output=True, timeout=900)
    assert run.returncode == -signal.SIGXFSZ, run.stderr
    [unfinished] = folder.glob("*.tmp")
    assert unfinished.name.startswith(f"snap_{dying}")
    assert 0 < unfinished.stat().st_size <= 100_000
    assert found() == {"caffemodel": left, "solverstate": [2]}
    others = [folder / f"{name}.0123456789abcdef.tmp" for name in ("snap_iter_4.png", "snap2_iter_4.caffemodel")]
    others.append(unfinished.with_name(f"{unfinished.name}.kept"))
    for other in others:
        other.write_bytes(b"")
    second = solver(outputs=4096)
    assert resumed(second) == 2
    second.snapshot()  # who has the prefix's lock removes what was not finished
    assert not unfinished.exists() and all(other.exists() for other in others)


def test_a_snapshot_holds_what_pycaffe_users_expect(solver):
    one = taken(solver(), 3)
    state = read_solver_state("snap_iter_3.solverstate")
    assert (state.iter, state.learned_net) == (3, "snap_iter_3.caffemodel")
    net = scaffe.Net(one.net.param, "snap_iter_3.caffemodel", scaffe.TEST)
    assert np.array_equal(net.params["ip"][0].data, one.net.params["ip"][0].data)
    assert snapshot.newest("snap", one.job.origin.run) == "snap_iter_3.solverstate"


def test_caffes_state_of_a_scalar_parameter_is_gone_on_from():
    prelu = 'layer { name: "prelu" type: "PReLU" bottom: "ip" top: "ip" prelu_param { channel_shared: true } }\n'
    net = nets.softmax_regression("db").replace('layer { name: "loss"', prelu + 'layer { name: "loss"')
    one = Solver(nets.solver_with(net, snapshot_prefix="snap"))
    taken(one, 2)
    for path, kind in (("snap_iter_2.caffemodel", NetParameter), ("snap_iter_2.solverstate", SolverState)):
        stored = kind.FromString(unseal(path).read_bytes())
        of_caffe = stored.history if kind is SolverState else [blob for layer in stored.layer for blob in layer.blobs]
        for blob in of_caffe:
            if not blob.shape.dim:
                blob.ClearField("shape")  # as Caffe leaves it out
        Path(path).write_bytes(stored.SerializeToString())
    other = Solver(nets.solver_with(net, snapshot_prefix="snap"))
    assert resumed(other) == 2
    for trained in (one, other):
        trained.step(2)
    assert np.array_equal(one.net.packed.data, other.net.packed.data)
    for trained in (one, other):
        trained.close()
