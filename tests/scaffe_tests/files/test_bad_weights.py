"""Weights and snapshots that belong elsewhere are refused, and change nothing."""

import os

import nets
import pytest
from bad_input import Refused, edit, train, trainable, trained

from scaffe.proto import SolverState


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


def test_weights_of_another_shape_are_told_with_layer_and_both_shapes(refused, folder):
    model, _ = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 12")
    said = "layer 'ip', blob 0: shape (12, 16) in the net, (10, 16) in the file"
    assert said in refused(*train("--weights", model))
    assert said in refused("test", "--model", "net.prototxt", "--weights", model)


def test_another_number_of_blobs_is_told(refused, folder):
    model, _ = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 10 bias_term: false")
    assert "layer 'ip': 1 parameter blobs in the net, 2 in the file" in refused(*train("--weights", model))


def test_weights_and_snapshots_are_not_taken_for_each_other(refused, folder):
    model, state = trained(folder)
    assert f"{model}: not a solver state; weights (.caffemodel) are given with --weights" in refused(
        *train("--snapshot", model)
    )
    for command in (train("--weights", state), ("test", "--model", "net.prototxt", "--weights", state)):
        assert f"{state}: a solver state where weights are expected; give it to --snapshot" in refused(*command)


def test_junk_is_not_called_weights(refused, folder):
    junk = folder / "snap_iter_9.solverstate"
    junk.write_bytes(bytes(range(7, 107)))
    assert refused(*train("--snapshot", junk)).endswith(f"{junk}: not a solver state, or a damaged one (100 bytes)")


@pytest.mark.parametrize("field", ["snapshot_prefix", "weights", "net"])
def test_a_name_with_a_zero_byte_is_refused(refused, field):
    edit("solver.prototxt", "random_seed: 1", f'{field}: "a\\000b"')
    if field != "weights":
        edit("solver.prototxt", {"net": 'net: "net.prototxt"', "snapshot_prefix": 'snapshot_prefix: "snap"'}[field], "")
    said = refused(*train())
    assert r"'a\x00b'" in said and "zero byte" in said


def rewrite(path, change):
    state = SolverState.FromString(path.read_bytes())
    change(state)
    for message in (state, *state.history):
        message.ClearField("checksum")
    state.ClearField("sealed")
    path.write_bytes(state.SerializeToString())


def test_the_state_of_another_solver_type_is_refused(refused, folder):
    _, state = trained(folder)
    rewrite(state, lambda s: setattr(s, "solver_type", "Adam"))
    assert f"{state}: the state of a solver of type Adam; this one's is SGD" in refused(*train("--snapshot", state))


@pytest.mark.parametrize(
    ("field", "number"),
    [("iter", -5), ("current_step", -1), ("random_seed", -3), ("samples", 2**63 - 1), ("samples", -1), ("records", -7)],
)
def test_a_state_with_an_impossible_number_is_refused(refused, folder, field, number):
    _, state = trained(folder)
    rewrite(state, lambda s: setattr(s.position[0] if field in ("samples", "records") else s, field, number))
    where = " of layer 'images' in the train net" if field in ("samples", "records") else ""
    said = refused(*train("--snapshot", state))
    assert f"{state}: a damaged solver state: {field}{where}: {number}, expected 0 to" in said


def test_a_state_that_names_no_weights_is_refused(refused, folder):
    _, state = trained(folder)
    rewrite(state, lambda s: s.ClearField("learned_net"))
    assert f"{state}: a damaged solver state: it names no weights" in refused(*train("--snapshot", state))


def test_the_history_of_caffes_adam_is_refused(refused, folder):
    _, state = trained(folder)

    def as_caffe_writes_adam(s):
        for field in ("solver_type", "random_seed", "position"):
            s.ClearField(field)
        s.history.extend(list(s.history))

    rewrite(state, as_caffe_writes_adam)
    assert "4 history blobs, but SGD with this net has 2" in refused(*train("--snapshot", state))


def test_the_state_of_another_net_is_refused_and_changes_nothing(refused, folder):
    _, state = trained(folder)
    edit("net.prototxt", "num_output: 10", "num_output: 12")
    assert "history of ip[0]: shape (12, 16) in the net, (10, 16) in the file" in refused(*train("--snapshot", state))


def test_a_state_without_its_weights_is_refused(refused, folder):
    model, state = trained(folder)
    model.unlink()
    assert f"{state}: its weights 'snap_iter_4.caffemodel' are missing" in refused(*train("--snapshot", state))


@pytest.mark.parametrize("part", [0, 0.3, 0.9])
def test_truncated_weights_and_states_are_refused(refused, folder, part):
    model, state = trained(folder)
    for path in (model, state):
        os.truncate(path, int(path.stat().st_size * part))
    assert str(model) in refused(*train("--weights", model))
    assert str(state) in refused(*train("--snapshot", state))


def test_a_prefix_that_another_job_writes_under_is_refused(refused, folder):
    trained(folder)
    nets.lock_of_a_running_job(folder / "snap")
    for more in ([], ["--snapshot", "auto", "--keep-snapshots", "1"]):
        said = refused(*train(*more))
        assert f"snapshot_prefix 'snap': another job writes there (process {os.getppid()} on " in said


def test_snapshot_and_weights_together_are_refused(refused, folder):
    model, state = trained(folder)
    assert "not both" in refused(*train("--snapshot", state, "--weights", model))
