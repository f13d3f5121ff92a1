"""The rank that is left of two: wherever the other is lost, it computes what it computes without a loss."""

from __future__ import annotations

import functools
import re
import threading
from pathlib import Path
from types import SimpleNamespace

import nets
import numpy as np
import pytest
from event_files import curves
from one_left import lose, solver

from collectives import RankLostError
from readers import Reading
from scaffe.errors import RanksLostError, ScaffeError, SnapshotError
from scaffe.monitor.record import RankRecord
from scaffe.monitor.watching import Watching
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.run import Run
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.workflows.workflow import Workflow
from scaffe.proto import SolverParameter
from scaffe.training import display
from scaffe.training.checkpoints import Checkpoints
from scaffe.training.ending import Ending
from scaffe.training.losses import Losses
from scaffe.training.parts import Parts
from scaffe.training.recovery.spares import ShrinkWithSpares
from scaffe.training.signals import ACTIONS
from scaffe.training.snapshot_writer import SnapshotWriter
from scaffe.training.snapshots import Snapshots
from scaffe.training.solver import Solver
from scaffe.training.state_transfer import StateTransfer
from scaffe.training.update import Update

END = 6
DATA = """
layer {{ name: "images" type: "Data" top: "data" top: "label" include {{ phase: {phase} }}
  transform_param {{ scale: 0.004 crop_size: 9 mirror: true }}
  data_param {{ source: "{source}" batch_size: {batch} backend: LMDB }} }}
"""
LAYERS = """
layer { name: "norm" type: "BatchNorm" bottom: "data" top: "norm" batch_norm_param { moving_average_fraction: 0.7 } }
layer { name: "ip1" type: "InnerProduct" bottom: "norm" top: "ip1"
  inner_product_param { num_output: 8 weight_filler { type: "xavier" } } }
layer { name: "drop" type: "Dropout" bottom: "ip1" top: "ip1" }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 10 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip2" bottom: "label" top: "loss" }
"""
SHRINKS = functools.partial(Run, on_rank_loss="shrink", bucket_bytes="0")
ALLREDUCE = {"workflow": "SC-OBR", "sync": "allreduce"}


@pytest.fixture(scope="module")
def net(tmp_path_factory) -> str:
    source = nets.write_images(tmp_path_factory.mktemp("one-left") / "db", shape=(1, 12, 12))
    parts = (DATA.format(phase=phase, source=source, batch=6 + k) for k, phase in enumerate(("TRAIN", "TEST")))
    return "".join(parts) + LAYERS


@pytest.fixture
def param(net: str, tmp_path: Path, monkeypatch) -> SolverParameter:
    """Adam, with tests and displays, and snapshots of prefix "snap" in the current folder."""
    monkeypatch.chdir(tmp_path)
    fields = {"type": "Adam", "momentum2": 0.99, "iter_size": 2, "average_loss": 3, "display": 1}
    tested = {"test_iter": [2], "test_interval": 3}
    return nets.solver_with(net, max_iter=END, snapshot_prefix="snap", snapshot_after_train=True, **fields, **tested)


def files() -> list[bytes]:
    """Return the snapshots, which have all that later iterations depend on, and remove them."""
    paths = sorted(Path().glob("snap*"))
    found = [str(path).encode() + path.read_bytes() for path in paths]
    for path in paths:
        path.unlink()
    return found


def solved(
    monkeypatch, param: SolverParameter, prepare=lambda one: None, **run
) -> tuple[list[bytes], list[float], str]:
    """Train to the end; return the last files, the last losses, and the request that ended it."""
    one = solver(monkeypatch, param, SHRINKS(**run))
    prepare(one)
    one.solve()
    one.close()
    return files(), [*one.parts.losses.last], one.stopped


@pytest.fixture
def told(caplog):
    """Return the numbers and paths that a training has logged since the last call."""
    caplog.set_level("INFO", "scaffe")

    def take() -> list[str]:
        found = [text for text in caplog.messages if re.search("net output|, loss|lr = |Snapshotting", text)]
        caplog.clear()
        return [re.sub(r" \(\S+ iter/s.*?\)", "", text) for text in found]

    return take


@pytest.mark.parametrize(
    ("owner", "name", "call", "run"),
    [
        (Losses, "take", 3, ALLREDUCE),  # an iteration's, before any update
        (Statistics, "average", 3, {}),  # the last message of an iteration whose updates are not early
        (Update, "__call__", 8, {"workflow": "SC-OBR", "drive": "helper"}),  # early, some buckets are updated
        (Update, "__call__", 8, ALLREDUCE),
        (Workflow, "drain", 4, {"workflow": "SC-OB"}),
        (Losses, "settle", 3, {}),  # of an iteration that is done, but not displayed
        (Losses, "settle", 3, ALLREDUCE),
        (Solver, "test_all", 2, {}),
        (display, "end", 1, {}),
        (Solver, "snapshot", 1, {}),
        (Ending, "final_loss", 1, {}),
        (Solver, "test_all", 3, ALLREDUCE),  # the last
        (Ending, "finish_records", 1, {}),
    ],
)
def test_what_was_broken_off_is_done_again_and_nothing_else(monkeypatch, told, param, owner, name, call, run):
    expected = *solved(monkeypatch, param, **run), told()
    lost = lose(monkeypatch, owner, name, call)
    assert (*solved(monkeypatch, param, **run), told()) == expected
    assert lost == [call]


def test_after_a_pass_of_the_users_own_all_instances_go_on_with_one_batch(monkeypatch, param):
    """Its number, which dropout follows, is that pass ahead of the iterations."""
    found, lost = [], []
    for losing in (False, True):
        one = solver(monkeypatch, param, SHRINKS(), instances=Instances("2", oversubscribe=True))
        one.net.forward()
        lost = lose(monkeypatch, Losses, "take", 3) if losing else []
        one.solve()
        one.close()
        found.append(files())
    assert lost == [3] and found[0] == found[1]


@pytest.mark.parametrize(
    ("owner", "name", "call"),
    [
        (StateTransfer, "share", 1),
        (Parts, "_build_parts", 2),  # the first is the set-up's
        (StateTransfer, "give", 1),
        (Parts, "_make_workflows", 2),
        (Parts, "plan", 2),
    ],
)
def test_a_recovery_that_is_broken_off_begins_again(monkeypatch, told, param, owner, name, call):
    run = {"workflow": "SC-OBR"}
    expected = *solved(monkeypatch, param, **run), told()
    first = lose(monkeypatch, Update, "__call__", 8)
    second = lose(monkeypatch, owner, name, call)
    assert (*solved(monkeypatch, param, **run), told()) == expected
    assert (first, second) == ([8], [call])


@pytest.mark.parametrize(
    ("action", "asked", "end", "owner", "name", "run"),
    [
        ("stop", 1, 1, Statistics, "average", {}),  # requested, but not granted: the iteration isn't begun again
        ("requeue", 0, 1, Solver, "snapshot", {"snapshot_async": False}),  # half granted
        ("requeue", 0, 1, Checkpoints, "_save", {}),
        ("stop", 0, 1, display, "end", ALLREDUCE),  # granted: the training has stopped
    ],
)
def test_a_request_that_was_under_way_is_granted_once(monkeypatch, told, param, action, asked, end, owner, name, run):
    def ask(one: Solver, iteration: int) -> None:
        requests = {action}
        one.asked = lambda: [
            one.recovery.rollback.begun == iteration + 1 and known in requests and not requests.discard(known)
            for known in ACTIONS
        ]

    expected = *solved(monkeypatch, param, lambda one: ask(one, end - 1), **run), told()
    lost = lose(monkeypatch, owner, name, asked + 1)
    assert (*solved(monkeypatch, param, lambda one: ask(one, asked), **run), told()) == expected
    assert lost == [asked + 1] and expected[2] == action


def test_a_snapshot_under_way_is_written_before_the_nets_are_built_anew(monkeypatch, param):
    """So that it cannot end after a later one of the same name, nor write what the nets that follow compute."""
    written, found = threading.Event(), []
    start, join, build = SnapshotWriter.start, SnapshotWriter.join, Parts._build_parts

    def joining(self):
        written.set()
        join(self)

    def building(self, handed):
        found.append([one.name for one in threading.enumerate() if one.name == "snapshot writer"])
        build(self, handed)

    monkeypatch.setattr(SnapshotWriter, "start", lambda self, write: start(self, lambda: (written.wait(900), write())))
    monkeypatch.setattr(SnapshotWriter, "join", joining)
    monkeypatch.setattr(Parts, "_build_parts", building)
    param.snapshot = 2
    lost = lose(monkeypatch, Losses, "take", 4)
    solved(monkeypatch, param)
    assert lost and found == [[], []]


def test_what_a_broadcast_has_torn_is_not_handed_on(monkeypatch, param):
    one, calls = solver(monkeypatch, param, SHRINKS()), []
    transfer, before = (
        StateTransfer(one.parts),
        [one.net.packed.flat.copy(), *(flat.copy() for flat in one.parts.rule.history)],
    )

    def torn(array: np.ndarray, source: int) -> None:
        array[...] = 7
        calls.append(source)
        if len(calls) == 2:
            raise RankLostError("in a broadcast")

    world = SimpleNamespace(rank=0, comm=SimpleNamespace(Bcast=torn), record=RankRecord())
    with pytest.raises(RankLostError):
        transfer.share(world, 2, False)
    one.net.packed.pinned = False  # it is its own successor
    one.parts.rule.take(transfer.history)
    transfer.give(one.parts)
    one.close()
    for found, expected in zip((one.net.packed.flat, *one.parts.rule.history), before, strict=True):
        np.testing.assert_array_equal(found, expected)


def test_the_next_recovery_goes_on_from_later_values(monkeypatch, told, param):
    expected = solved(monkeypatch, param), told()
    lost = [lose(monkeypatch, Losses, "take", call) for call in (5, 3)]  # each counts the calls that get to it
    assert (solved(monkeypatch, param), told()) == expected and lost == [[5], [3]]


def test_what_users_hold_and_have_called_goes_on(monkeypatch, param):
    def train(one: Solver) -> bytes:
        one.net.before_forward(called.append)
        one.net.forward()  # a user's own pass, which takes a batch
        one.step(3)
        one.close()
        return one.net.packed.data.tobytes()

    called: list[int] = []
    expected, count = train(solver(monkeypatch, param, SHRINKS())), len(called)
    held = solver(monkeypatch, param, SHRINKS())
    net, lost = held.net, lose(monkeypatch, Statistics, "average", 2)
    called.clear()
    assert train(held) == expected and lost == [2]
    assert len(called) == count + 2 * len(net.layers)  # the two passes that were broken off
    assert held.net is not net and net.packed.data.tobytes() == expected


def test_the_error_of_a_background_snapshot_outlives_a_loss(monkeypatch, param):
    def fail(self: Snapshots, content: object) -> None:
        monkeypatch.setattr(Snapshots, "_write", write)  # the next one can be written
        raise SnapshotError("no space left")

    write = Snapshots._write
    monkeypatch.setattr(Snapshots, "_write", fail)
    param.snapshot = 2
    lost = lose(monkeypatch, Losses, "take", 3)
    with pytest.raises(ScaffeError, match="no space left"):
        solved(monkeypatch, param)
    assert lost == [3]


def test_bad_records_that_were_read_before_a_loss_count(monkeypatch, param):
    lost = lose(monkeypatch, Losses, "take", 3)
    one = solver(monkeypatch, param, SHRINKS(), reading=Reading(bad_records="skip"))
    one.step(4)
    read = one.parts.bad_records.counts()[1]
    one.close()
    assert lost and read > sum(layer.records_read for net in (one.net, *one.test_nets) for layer in net.data_layers())


def test_all_that_a_rank_hands_on_is_that_of_the_source(monkeypatch, param):
    one = solver(monkeypatch, param, SHRINKS())
    transfer, (values, *history) = StateTransfer(one.parts), [np.full(one.net.packed.flat.size, k) for k in range(3)]
    sent, positions = iter([values, *history]), transfer._positions

    def bcast(array: np.ndarray, source: int) -> None:
        assert source == 2
        array[...] = next(sent)

    world = SimpleNamespace(rank=0, comm=SimpleNamespace(Bcast=bcast), record=RankRecord())
    world.bcast = lambda mine, source: (positions, 17)[: 2 * (source == 2)]
    transfer.share(world, 2, False)
    one.net.packed.pinned = False  # it is its own successor
    one.parts.rule.take(transfer.history)
    transfer.give(one.parts)
    one.close()
    np.testing.assert_array_equal(one.net.packed.flat, values)
    for found, expected in zip(one.parts.rule.history, history, strict=True):
        np.testing.assert_array_equal(found, expected)
    assert one.net.context.batch_number == 17


def lose_the_root(one: Solver) -> None:
    """Make the next lost rank the root, whose place this rank takes."""
    one.world.losing, one.recovery.was_root = [0], False


def test_until_an_iteration_begins_all_ranks_have_what_the_root_gave_them_in_a_recovery(monkeypatch, told, param):
    expected = solved(monkeypatch, param), told()

    def prepare(one: Solver) -> None:
        lose(monkeypatch, Losses, "take", 3)
        lose(monkeypatch, Parts, "arrange", 4, lambda: lose_the_root(one))

    assert (solved(monkeypatch, param, prepare), told()) == expected


def test_a_root_that_is_lost_while_nets_are_replaced_for_other_instances_is_not_missed(monkeypatch, told, param):
    """Nor are its mirror and snapshots, with which the nets that are handed on would not go."""
    calls, arrange = [], Parts.arrange

    def arranged(parts: Parts, rebuild) -> None:
        calls.append(parts.job.iter)
        rebuild() if len(calls) == 4 else arrange(parts, rebuild)

    def prepare(one: Solver) -> None:
        def rebuild() -> None:
            lose_the_root(one)
            replaced()

        calls.clear()
        replaced, one._rebuild = one._rebuild, rebuild
        lose(monkeypatch, Parts, "_build_parts", 1)

    monkeypatch.setattr(Parts, "arrange", arranged)
    expected = solved(monkeypatch, param), told()
    assert (solved(monkeypatch, param, prepare), told()) == expected and len(calls) == END + 1


def test_without_the_root_training_goes_on_at_the_newest_snapshot(monkeypatch, param):
    param.snapshot = 2
    *expected, _ = solved(monkeypatch, param)

    def prepare(one: Solver) -> None:
        lost.extend([lose(monkeypatch, Losses, "take", 6, lambda: lose_the_root(one))])

    lost: list[list[int]] = []
    *found, _ = solved(monkeypatch, param, prepare)
    assert found == expected and lost == [[6]]


def test_the_numbers_go_on_where_the_next_root_does(monkeypatch, param, tmp_path):
    """They replace those that the lost root has written of iterations that are done again."""

    def train(folder: Path, call: int) -> dict[str, list[tuple[int, float]]]:
        watching = Watching(stall_seconds=0, tensorboard=folder, metrics=folder.with_suffix(".prom"), measure_every=1)
        one = solver(monkeypatch, param, SHRINKS(), watching)

        def end_the_root() -> None:
            one.monitor.close()  # whose numbers are written
            assert (4, rate) in curves(folder)["learning_rate"]
            lose_the_root(one)

        rate = pytest.approx(one.lr)
        lost = lose(monkeypatch, Losses, "take", call, end_the_root)
        one.solve()
        one.close()
        files()
        assert lost == [call] * (call > 0)
        shown = curves(folder)
        return {tag: shown[tag] for tag in shown if tag.startswith(("loss/iteration", "learning", "train", "update"))}

    param.snapshot = 2
    expected = train(tmp_path / "whole", -1)
    assert [step for step, _ in expected["update_norm/ip1"]] == [*range(END)]
    assert train(tmp_path / "runs", 6) == expected  # they go back from iteration 5 to 4
    texts = [(tmp_path / f"{name}.prom").read_text() for name in ("whole", "runs")]
    lasts = [re.findall(r"^scaffe_(?:iteration|update_norm)\{run=.*?[,}](.*)$", text, re.M) for text in texts]
    assert lasts[0] == lasts[1] != []


def test_an_iteration_that_is_done_is_measured_once_though_a_loss_comes_first(monkeypatch, param, tmp_path):
    """By nets that were built anew, so that its norms alone are missing."""

    def train(folder: Path, call: int) -> dict[str, list[tuple[int, float]]]:
        watching = Watching(stall_seconds=0, tensorboard=folder, measure_every=1)
        lost, one = lose(monkeypatch, Losses, "settle", call), solver(monkeypatch, param, SHRINKS(), watching)
        one.step(4)
        one.close()
        files()
        assert lost == [call] * (call > 0)
        shown = curves(folder)
        return {tag: shown[tag] for tag in shown if tag.startswith(("loss", "learning", "train", "update"))}

    param.display = 0
    expected, found = train(tmp_path / "whole", -1), train(tmp_path / "runs", 3)
    norms = [tag for tag in expected if tag.startswith("update")]
    assert norms and [[step for step, _ in found[tag]] for tag in norms] == [[0, 2, 3]] * len(norms)
    assert {tag: found[tag] for tag in expected if tag not in norms} == {
        tag: expected[tag] for tag in expected if tag not in norms
    }


def test_without_the_root_a_last_snapshot_or_a_mirror_the_training_ends(monkeypatch, param):
    one = solver(monkeypatch, param, SHRINKS())
    lose(monkeypatch, Statistics, "average", 3, lambda: lose_the_root(one))
    with pytest.raises(RanksLostError, match="there is no snapshot of snap of this run"):
        one.solve()


def test_the_threads_of_workflows_that_were_broken_off_end(monkeypatch, param):
    before = {*threading.enumerate()}
    lost = lose(monkeypatch, Losses, "take", 3)
    one = solver(monkeypatch, param, SHRINKS(workflow="SC-OBR", drive="helper"))
    helpers = {*threading.enumerate()} - before
    one.step(4)
    assert lost and helpers and not [thread for thread in helpers if thread.is_alive()]
    one.close()


def test_that_spares_take_places_is_no_false_alarm_but_a_loss_of_no_rank_is(monkeypatch, param, caplog):
    one, empty = solver(monkeypatch, param, SHRINKS()), iter([True, False])
    one.world.losing = []
    monkeypatch.setattr(type(one.world), "has_empty_places", property(lambda world: next(empty)))
    one.recovery.__class__ = ShrinkWithSpares
    one.recovery.part("fill places", one.recovery._fill_places)
    lost = lose(monkeypatch, Losses, "take", 1)
    one.step(1)
    one.close()
    alarms = [text for text in caplog.messages if "none is lost" in text]
    assert lost and len(alarms) == 1 and "in call 1 of take" in alarms[0]
    assert caplog.text.count("Ranks left: 3; they go on at iteration 0") == 2


def test_what_the_lost_roots_broadcasts_have_replaced_in_a_first_iteration_is_put_back(monkeypatch, told, param):
    run = {"workflow": "SC-OBR"}
    expected = solved(monkeypatch, param, **run), told()

    def prepare(one: Solver) -> None:
        def broadcast() -> None:
            one.net.packed.set_data(np.full_like(one.net.packed.flat, 7))

        lost.append(lose(monkeypatch, Losses, "take", 1, broadcast))

    lost: list[list[int]] = []
    assert (solved(monkeypatch, param, prepare, **run), told()) == expected and lost == [[1]]


def test_a_rank_that_is_the_root_no_longer_writes_no_snapshot(monkeypatch, param):
    def renumber() -> None:
        assert Path("snap.lock").exists()
        monkeypatch.setattr(type(one.world), "is_root", False)

    one = solver(monkeypatch, param, SHRINKS(snapshot_budget="3%"))
    lost = lose(monkeypatch, Losses, "take", 2, renumber)
    one.step(3)
    assert lost and not Path("snap.lock").exists() and one.checkpoints.budget is None
    one.close()


def test_a_run_that_has_restored_no_snapshot_ends_without_the_root(monkeypatch, param):
    one = solver(monkeypatch, param, SHRINKS())
    one.step(1)
    one.restore("auto")
    lose(monkeypatch, Statistics, "average", 1, lambda: lose_the_root(one))
    with pytest.raises(RanksLostError, match="there is no snapshot of snap of this run"):
        one.step(1)


def test_a_run_goes_back_once_without_the_root_to_the_snapshot_that_it_has_restored(monkeypatch, param, caplog):
    """Then another rank is the root."""
    first, second = (solver(monkeypatch, param, SHRINKS()) for _ in range(2))
    first.step(2)
    path = first.snapshot()
    first.step(3)
    first.close()
    shared, share = [], Snapshots.share_history
    monkeypatch.setattr(Snapshots, "share_history", lambda self: shared.append(self) or share(self))
    second.parts.mirror = SimpleNamespace(forget=lambda: shared.append("no mirror"))
    second.restore(path)
    assert shared == ["no mirror", second.parts.snapshots]  # all ranks have the state until the next update
    second.parts.mirror = None
    for call, then in ((5, lambda: None), (3, lambda: lose_the_root(second))):  # each counts the calls that get to it
        lose(monkeypatch, Losses, "take", call, then)
    second.step(3)
    second.close()
    assert second.recovery.was_set_back and re.findall(r"go on at iteration (\d)", caplog.text) == ["2", "4"]
    np.testing.assert_array_equal(second.net.packed.flat, first.net.packed.flat)
