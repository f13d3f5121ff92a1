"""Snapshots in HDF5: Caffe's own are taken up, ours have Caffe's layout, and both formats do the same."""

import os
import re
import shutil
import sys
from pathlib import Path

import nets
import numpy as np
import pytest
from google.protobuf import text_format
from unsealed import unseal

import scaffe
from scaffe.errors import PrototxtError, SnapshotError, WeightsError
from scaffe.files.states import complete
from scaffe.parallel.run import Run
from scaffe.proto import NetParameter, SolverParameter, blobs
from scaffe.proto.files import read_solver, read_solver_state, read_weights
from scaffe.training.solver import Solver

h5py = pytest.importorskip("h5py")

CAFFES = "quick_xavier_h5_iter_50"


@pytest.fixture
def artefacts(cases):
    return cases / "caffe" / "artefacts"


def contents(path):
    """Return what an HDF5 file holds: a type, shape and bytes for each dataset, None for each group."""
    found = {}
    with h5py.File(path) as file:
        file.visititems(
            lambda name, item: found.update(
                {name: (item.dtype, item.shape, item[()].tobytes()) if isinstance(item, h5py.Dataset) else None}
            )
        )
    return found


# Caffe's own files.


def test_caffes_hdf5_weights_are_its_binary_ones(artefacts):
    layers = {layer.name: layer for layer in read_weights(artefacts / f"{CAFFES}.caffemodel.h5").layer}
    binary = read_weights(artefacts / "quick_xavier_iter_50.caffemodel").layer
    assert layers.keys() == {layer.name for layer in binary}
    for layer in binary:
        for ours, theirs in zip(layers[layer.name].blobs, layer.blobs, strict=True):
            assert ours.shape == theirs.shape
            assert np.array_equal(blobs.values(ours), blobs.values(theirs))


def test_caffes_hdf5_state_is_its_binary_one(artefacts):
    state = read_solver_state(artefacts / f"{CAFFES}.solverstate.h5")
    binary = read_solver_state(artefacts / "quick_xavier_iter_50.solverstate")
    assert (state.iter, state.current_step) == (binary.iter, binary.current_step) == (50, 0)
    assert state.learned_net == f"{CAFFES}.caffemodel.h5"
    for ours, theirs in zip(state.history, binary.history, strict=True):
        assert ours.shape == theirs.shape
        assert np.array_equal(blobs.values(ours), blobs.values(theirs))


def test_caffes_snapshot_is_taken_up_and_written_again_as_it_was(artefacts, tmp_path, monkeypatch):
    monkeypatch.chdir(artefacts)
    param = read_solver("quick_xavier_solver.prototxt")
    param.snapshot_format = SolverParameter.HDF5
    param.snapshot_prefix = str(tmp_path / "quick_xavier_h5")
    solver = Solver(param)
    solver.restore(f"{CAFFES}.solverstate.h5")
    assert solver.iter == 50
    solver.snapshot()
    solver.close()
    weights = contents(tmp_path / f"{CAFFES}.caffemodel.h5")
    assert b"input_transform" in weights.pop("scaffe/net")[2]
    assert weights.pop("scaffe") is None
    assert weights == contents(f"{CAFFES}.caffemodel.h5")
    ours, theirs = contents(tmp_path / f"{CAFFES}.solverstate.h5"), contents(f"{CAFFES}.solverstate.h5")
    assert {name.split("/")[0] for name in ours.keys() - theirs.keys()} == {"scaffe"}
    name = str(tmp_path / f"{CAFFES}.caffemodel.h5").encode()
    assert ours.pop("learned_net") == (f"S{len(name) + 1}", (), name)  # with a zero at its end
    assert theirs.pop("learned_net") == (f"S{len(CAFFES) + 15}", (), f"{CAFFES}.caffemodel.h5".encode())
    assert {name: ours[name] for name in theirs} == theirs


# Our own.

NET = """
layer {{ name: "d" type: "Data" top: "data" top: "label" data_param {{ source: "{db}" batch_size: 3 backend: LMDB }}
  transform_param {{ scale: 0.01 mirror: true }} }}
layer {{ name: "block/ip" type: "InnerProduct" bottom: "data" top: "ip"
  inner_product_param {{ num_output: 10 weight_filler {{ type: "xavier" }} }} }}
layer {{ name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }}
"""


@pytest.fixture
def solver(tmp_path, monkeypatch):
    """Make Adam solvers of a small net, with the prefix 'snap' in the working directory."""
    monkeypatch.chdir(tmp_path)
    db = nets.write_images(tmp_path / "db", 20, (1, 4, 4))
    made = []

    def make(form=SolverParameter.HDF5, keep=0):
        param = nets.solver_with(NET.format(db=db), type="Adam", snapshot_prefix="snap", snapshot_format=form)
        made.append(Solver(param, run=Run(keep_snapshots=keep)))
        return made[-1]

    yield make
    for one in made:
        one.close()


def assert_same_run(a, b):
    assert np.array_equal(a.net.packed.data, b.net.packed.data)
    for mine, theirs in zip(a.parts.rule.history, b.parts.rule.history, strict=True):
        assert np.array_equal(mine, theirs)


@pytest.mark.parametrize("form", [SolverParameter.HDF5, SolverParameter.BINARYPROTO])
def test_a_run_goes_on_to_the_bit(solver, form):
    straight, first, second = solver(form), solver(form), solver(form)
    straight.step(7)
    first.step(4)
    state = first.snapshot()
    assert state == ("snap_iter_4.solverstate.h5" if form == SolverParameter.HDF5 else "snap_iter_4.solverstate")
    second.job.seed = 99  # the state's counts
    second.restore("auto")
    second.step(3)
    assert_same_run(straight, second)


def test_the_newest_snapshot_is_found_and_older_ones_removed_whatever_their_format(solver):
    one = solver(keep=2)
    for form in (SolverParameter.BINARYPROTO, SolverParameter.HDF5, SolverParameter.HDF5, SolverParameter.BINARYPROTO):
        one.param.snapshot_format = form
        one.step(1)
        one.snapshot()
        newest = one.iter
        assert complete("snap")[-1].path.startswith(f"snap_iter_{newest}.solverstate")
    assert sorted(map(str, Path().glob("snap_*"))) == [
        "snap_iter_3.caffemodel.h5",
        "snap_iter_3.solverstate.h5",
        "snap_iter_4.caffemodel",
        "snap_iter_4.solverstate",
    ]


def test_gradients_are_stored_where_asked_for(solver):
    one = solver()
    one.param.snapshot_diff = True
    one.step(1)
    one.snapshot()
    with h5py.File("snap_iter_1.caffemodel.h5") as file:
        assert np.array_equal(file["diff/block/ip/0"], one.net.params["block/ip"][0].diff)
        assert list(file["diff"]) == list(file["data"])


def test_the_state_of_another_solver_type_is_refused(solver):
    solver().snapshot()
    other = solver()
    other.parts.rule.kind = "SGD"
    with pytest.raises(WeightsError, match="Adam"):
        other.restore("snap_iter_0.solverstate.h5")


SHARED = """
layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 2 dim: 4 } } }
layer { name: "a" type: "InnerProduct" bottom: "x" top: "y" param { name: "w" } param { name: "b" }
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "b" type: "InnerProduct" bottom: "y" top: "z" param { name: "w" } param { name: "OTHER" }
  inner_product_param { num_output: 4 bias_filler { type: "uniform" } } }
"""


def shared_net(other="c"):
    return scaffe.Net(text_format.Parse(SHARED.replace("OTHER", other), NetParameter()), scaffe.TEST)


@pytest.mark.parametrize("other", ["c", "b"])
def test_a_shared_blob_is_stored_once_and_found_by_all_who_share_it(tmp_path, other):
    one, two = shared_net(other), shared_net(other)
    one.save(tmp_path / "w.h5")
    stored = {name for name, item in contents(tmp_path / "w.h5").items() if item is not None}
    assert stored == {"data/a/0", "data/a/1"} | ({"data/b/1"} if other == "c" else set())
    two.packed.data[...] = 0
    two.copy_from(tmp_path / "w.h5")
    assert np.array_equal(one.packed.data, two.packed.data)


@pytest.mark.parametrize(("other", "held"), [("c", 1), ("b", 0)])
def test_a_blob_that_is_left_out_is_missed_where_it_is_not_shared(tmp_path, other, held):
    shared_net(other).save(tmp_path / "w.h5")
    apart = re.sub('param { name: "[^"]*" }', "", SHARED)
    alone = scaffe.Net(text_format.Parse(apart, NetParameter()), scaffe.TEST)
    before = alone.packed.data.copy()
    with pytest.raises(WeightsError, match=f"layer 'b': 2 parameter blobs in the net, {held} in the file"):
        alone.copy_from(tmp_path / "w.h5")
    assert np.array_equal(alone.packed.data, before)


# Files that are something else.


def test_weights_and_states_are_told_apart(artefacts):
    with pytest.raises(PrototxtError, match="give it to --snapshot"):
        read_weights(artefacts / f"{CAFFES}.solverstate.h5")
    with pytest.raises(PrototxtError, match="given with --weights"):
        read_solver_state(artefacts / f"{CAFFES}.caffemodel.h5")


@pytest.mark.parametrize("part", [0.01, 0.3, 0.99])
@pytest.mark.parametrize("kind", ["caffemodel", "solverstate"])
def test_a_truncated_file_is_named(artefacts, tmp_path, kind, part):
    path = Path(shutil.copyfile(artefacts / f"{CAFFES}.{kind}.h5", tmp_path / "cut.h5"))
    os.truncate(path, int(path.stat().st_size * part))
    with pytest.raises(PrototxtError) as error:
        (read_weights if kind == "caffemodel" else read_solver_state)(path)
    assert str(error.value).startswith(f"{path}: a damaged HDF5 file: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("gone", ["history/1", "current_step", "learned_net"])
def test_a_state_that_lacks_a_part_is_named(solver, gone):
    path = solver().snapshot()
    with h5py.File(unseal(path), "a") as file:
        del file[gone]
        file["history/5"] = np.zeros(1, np.float32)
    with pytest.raises(PrototxtError, match=f"{path}: a damaged HDF5 file"):
        read_solver_state(path)


def test_without_h5py_it_is_named_before_the_first_iteration_and_never_passed_over(solver, monkeypatch):
    solver().snapshot()
    monkeypatch.setitem(sys.modules, "h5py", None)
    with pytest.raises(SnapshotError, match="pip install h5py"):
        solver()
    binary = solver(SolverParameter.BINARYPROTO)
    with pytest.raises(SnapshotError, match="pip install h5py"):
        binary.restore("auto")


# Files from elsewhere that would show this machine's files, or fill its memory.


def values_elsewhere(file, name, shape):
    """Let a dataset's values be what the file 'secret' holds."""
    Path("secret").write_bytes(bytes(4096))
    file.create_dataset(name, shape, "<f4", external=[("secret", 0, h5py.h5f.UNLIMITED)])


def virtual(file, name, shape):
    with h5py.File("other.h5", "w") as other:
        other["x"] = np.zeros(shape, "f4")
    layout = h5py.VirtualLayout(shape, "f4")
    layout[...] = h5py.VirtualSource("other.h5", "x", shape)
    file.create_virtual_dataset(name, layout)


def linked(file, name, shape):
    with h5py.File("other.h5", "w") as other:
        other["x"] = np.zeros(shape, "f4")
    file[name] = h5py.ExternalLink("other.h5", "x")


def vast(file, name, shape):
    file.create_dataset(name, (1 << 40,), "f4", chunks=(1000,), compression="gzip")


def vast_chunk(file, name, shape):
    file.create_dataset(name, shape, "f4", maxshape=(None,) * len(shape), chunks=(1 << 24,) + shape[1:])


def of_type(kind):
    return lambda file, name, shape: file.create_dataset(name, shape, kind)


PARTS = {
    "values elsewhere": (values_elsewhere, "lie in another file"),
    "virtual": (virtual, "lie in another file"),
    "external link": (linked, "is a link into another file"),
    "vast": (vast, r"1099511627776|in the net, \(1099511627776,\) in the file"),
    "vast chunk": (vast_chunk, "has chunks of"),
    "complex": (of_type("c8"), "expected numbers in '.*', got complex64"),
    "strings": (of_type("S4"), "expected numbers in '.*', got |S4"),
    "compound": (of_type([("a", "f4"), ("b", "i4")]), "expected numbers in"),
    "a group": (lambda file, name, shape: file.create_group(name), "parameter blobs in the net|expected a dataset"),
    "null": (lambda file, name, shape: file.create_dataset(name, data=h5py.Empty("f4")), "got none"),
}


@pytest.mark.parametrize("what", PARTS)
@pytest.mark.parametrize("kind", ["caffemodel", "solverstate"])
def test_a_part_that_is_no_array_of_this_file_is_refused(solver, kind, what):
    make, said = PARTS[what]
    one = solver()
    state = one.snapshot()
    path, name = {"caffemodel": ("snap_iter_0.caffemodel.h5", "data/block/ip/0"), "solverstate": (state, "history/0")}[
        kind
    ]
    with h5py.File(unseal(path), "a") as file:
        shape = file[name].shape
        del file[name]
        make(file, name, shape)
    with pytest.raises((PrototxtError, WeightsError), match=said) as error:
        one.restore(state)
    assert str(error.value).startswith(f"{path}: ") and "\n" not in str(error.value)


def named(name):
    return lambda file: file.create_dataset(f"data/block/ip/{name}", data=[1.0])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (named("3000000"), "2 parameter blobs in the net, blob 3000000"),
        (named("-1"), "called by their number in 'data/block/ip', got '-1'"),
        (named("x"), "called by their number"),
        (lambda file: file["data/block"].__setitem__("again", file["data"]), "two links lead to the group"),
        (lambda file: file.__setitem__("data/ip", h5py.SoftLink("/data")), "'ip' is a soft link"),
    ],
    ids=["index beyond the net's", "negative index", "no index", "circle", "soft link"],
)
def test_blobs_that_are_no_layers_are_refused(solver, change, said):
    one = solver()
    state = one.snapshot()
    with h5py.File(unseal("snap_iter_0.caffemodel.h5"), "a") as file:
        change(file)
    with pytest.raises((PrototxtError, WeightsError), match=said):
        one.restore(state)


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("iter", 1j, "expected numbers in 'iter', got complex128"),
        ("iter", "four", "expected numbers in 'iter'"),
        ("iter", [1, 2], r"expected one integer in 'iter', got int64 of shape \(2,\)"),
        ("iter", 1 << 40, "damaged"),
        ("iter", h5py.SoftLink("iter"), "'iter' is behind more than 16 soft links"),
        ("learned_net", 3, "expected a string in 'learned_net', got int64"),
        ("learned_net", b"\xff", "damaged"),
        ("history", [1.0], "no group history"),
        ("scaffe", h5py.ExternalLink("other.h5", "scaffe"), "'scaffe/state' is a link into another file"),
    ],
)
def test_a_state_with_a_part_of_another_kind_is_refused(solver, name, value, said):
    path = solver().snapshot()
    with h5py.File(unseal(path), "a") as file:
        del file[name]
        file[name] = value
    with pytest.raises(PrototxtError, match=f"^{path}: .*{said}"):
        read_solver_state(path)
