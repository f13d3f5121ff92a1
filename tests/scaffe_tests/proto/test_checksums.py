"""Files of weights and states that have changed since they were written: each flipped bit is noticed, and located."""

import random
from pathlib import Path

import nets
import numpy as np
import pytest
from google.protobuf.message import DecodeError

from scaffe.errors import PrototxtError
from scaffe.proto import BlobShape, NetParameter, SolverParameter, SolverState, blobs, checksums
from scaffe.proto.files import read_solver_state, read_weights
from scaffe.proto.upgrade_files import upgrade_net_file
from scaffe.training.solver import Solver

KINDS = ["caffemodel", "solverstate", "caffemodel.h5", "solverstate.h5"]
FLIPS = 120


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A snapshot's files of each kind, by kind."""
    h5py = pytest.importorskip("h5py")
    folder = tmp_path_factory.mktemp("snapshots")
    nets.write_images(folder / "db", 20, (1, 4, 4))
    for form in (SolverParameter.BINARYPROTO, SolverParameter.HDF5):
        prefix = str(folder / "snap")
        param = nets.solver_with(
            nets.softmax_regression(folder / "db"), snapshot_prefix=prefix, snapshot_format=form, snapshot_diff=True
        )
        solver = Solver(param)
        solver.step(2)
        solver.snapshot()
        solver.close()
    assert h5py.is_hdf5(folder / "snap_iter_2.caffemodel.h5")
    return {kind: folder / f"snap_iter_2.{kind}" for kind in KINDS}


def read(kind):
    return read_weights if kind.startswith("caffemodel") else read_solver_state


def flipped(content, bit):
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refusal(path, kind, content):
    """Return the line with which a file of this content is refused."""
    path.write_bytes(content)
    with pytest.raises(PrototxtError) as error:
        read(kind)(path)
    said = str(error.value)
    assert said.startswith(f"{path}: ") and "\n" not in said
    return said


@pytest.mark.parametrize("kind", KINDS)
def test_a_flipped_bit_is_noticed_wherever_it_is(files, tmp_path, kind):
    content, path = files[kind].read_bytes(), tmp_path / f"flipped.{kind}"
    drawn = random.Random(kind).sample(range(8 * len(content)), FLIPS)
    ends = [*range(8 * 8), *range(8 * (len(content) - 40), 8 * len(content))]  # the first fields, and all of the seal
    for bit in [*drawn, *ends]:
        refusal(path, kind, flipped(content, bit))


@pytest.mark.parametrize("kind", KINDS)
def test_damage_to_a_value_is_located_by_its_blob(files, tmp_path, kind):
    content, path = files[kind].read_bytes(), tmp_path / f"flipped.{kind}"
    stored = read(kind)(files[kind])
    [blob, name] = (
        (stored.history[1], "history blob 1")
        if kind.startswith("solverstate")
        else (next(layer for layer in stored.layer if layer.name == "ip").blobs[1], "layer 'ip', blob 1")
    )
    values = blobs.values(blob).tobytes()
    at = content.index(values)
    said = refusal(path, kind, flipped(content, 8 * (at + random.Random(kind).randrange(len(values)))))
    assert f"damaged, or changed by another program ({name})" in said and "older snapshot" in said


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_that_is_cut_off_is_noticed_wherever_that_is(files, tmp_path, kind):
    content, path = files[kind].read_bytes(), tmp_path / f"cut.{kind}"
    drawn = random.Random(kind).sample(range(len(content)), 60)
    for end in [*drawn, *range(len(content) - 40, len(content))]:
        refusal(path, kind, content[:end])


@pytest.mark.parametrize(("kind", "message"), [("caffemodel", NetParameter), ("solverstate", SolverState)])
def test_a_file_that_is_cut_off_between_two_fields_is_noticed(files, tmp_path, kind, message):
    content, path = files[kind].read_bytes(), tmp_path / f"cut.{kind}"
    ends = [end for end in range(1, len(content)) if is_message(message, content[:end])]
    assert len(ends) > 3
    for end in ends:
        refusal(path, kind, content[:end])


def is_message(kind, content):
    try:
        return bool(kind.FromString(content))
    except DecodeError:
        return False


def test_files_without_checksums_are_read_as_they_are(files, tmp_path):
    net = NetParameter.FromString(files["caffemodel"].read_bytes())
    for name in ("sealed", "checksum"):
        net.ClearField(name)
    for layer in net.layer:
        for blob in layer.blobs:
            blob.ClearField("checksum")
    (tmp_path / "as_caffe.caffemodel").write_bytes(net.SerializeToString())
    assert read_weights(tmp_path / "as_caffe.caffemodel") == net


def test_a_blobs_checksum_is_of_its_shape_values_and_gradients():
    values = np.arange(6, dtype=np.float32)
    given = [((2, 3), values), ((3, 2), values), ((6,), values), ((2, 3), values + 1), ((2, 3), values, values)]
    assert len({checksums.of(*one) for one in given}) == len(given)


@pytest.mark.parametrize(("kind", "message"), [("caffemodel", NetParameter), ("solverstate", SolverState)])
def test_damage_to_a_shape_is_located_by_its_blob(files, tmp_path, kind, message):
    content = files[kind].read_bytes()
    shape = first_blobs(message.FromString(content))[0].shape
    turned = BlobShape(dim=reversed(shape.dim))
    assert len(shape.dim) == 2
    changed = content.replace(shape.SerializeToString(), turned.SerializeToString(), 1)
    assert "blob 0)" in refusal(tmp_path / f"turned.{kind}", kind, changed)


def first_blobs(message):
    """Return the history of a solver state, or the blobs of the first layer that has some."""
    return (
        message.history if isinstance(message, SolverState) else next(one.blobs for one in message.layer if one.blobs)
    )


@pytest.mark.parametrize(("kind", "message"), [("caffemodel", NetParameter), ("solverstate", SolverState)])
def test_a_file_that_a_program_changed_by_protobuf_is_read(files, tmp_path, kind, message):
    content, path = message.FromString(files[kind].read_bytes()), tmp_path / f"edited.{kind}"
    first_blobs(content)[0].data[1] = 42
    path.write_bytes(content.SerializeToString())
    assert blobs.values(first_blobs(read(kind)(path))[0])[1] == 42


def test_a_file_that_a_program_composed_of_layers_is_read(files, tmp_path):
    old, path = NetParameter.FromString(files["caffemodel"].read_bytes()), tmp_path / "composed.caffemodel"
    new = NetParameter(name="composed", layer=[layer for layer in old.layer if layer.blobs])
    new.layer[0].blobs[0].data[1] = 42
    path.write_bytes(new.SerializeToString())
    assert read_weights(path) == new


def test_hdf5_opens_sealed_files(files):
    h5py = pytest.importorskip("h5py")
    with h5py.File(files["caffemodel.h5"]) as file:  # by the library's own ways to a file, as Caffe does
        assert np.array_equal(file["data/ip/1"], blobs.values(read_weights(files["caffemodel"]).layer[1].blobs[1]))


def test_an_upgraded_file_has_a_seal_of_its_own(files, tmp_path):
    old, new = files["caffemodel"], tmp_path / "new.caffemodel"
    upgrade_net_file(old, new)
    assert read_weights(new).layer == read_weights(old).layer
    content = new.read_bytes()
    refusal(new, "caffemodel", flipped(content, 4 * len(content)))
    damaged = Path(tmp_path / "damaged.caffemodel")
    damaged.write_bytes(flipped(old.read_bytes(), 8 * 100))
    with pytest.raises(PrototxtError, match="damaged.caffemodel: damaged"):
        upgrade_net_file(damaged, tmp_path / "other.caffemodel")
