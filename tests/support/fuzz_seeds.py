"""Good files of every kind, and what reads each: for tests/fuzz.py."""

from __future__ import annotations

import io
import json
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import nets
import numpy as np
from PIL import Image
from unsealed import unseal

import readers
import scaffe
from collectives import tuning
from readers.datum import decode
from scaffe.compute import Compute
from scaffe.devices import choices
from scaffe.proto import LayerParameter, NetParameter, SolverState, V0LayerParameter, V1LayerParameter
from scaffe.proto.files import read_net, read_solver, read_solver_state, read_weights
from scaffe.proto.upgrade_files import upgrade_net_file
from scaffe.timeline import advice
from scaffe.timeline.overlap import summarise
from scaffe.timeline.trace import read_trace
from scaffe.training import replay
from scaffe.training.settings import read_settings

NET = """
name: "net"
layer { name: "x" type: "Input" top: "x" input_param { shape { dim: 2 dim: 3 dim: 8 dim: 8 } } }
layer { name: "l" type: "Input" top: "l" input_param { shape { dim: 2 } } }
layer { name: "conv" type: "Convolution" bottom: "x" top: "conv" param { lr_mult: 1 decay_mult: 1 }
  convolution_param { num_output: 4 kernel_size: 3 stride: 1 pad: 1 weight_filler { type: "gaussian" std: 0.1 } } }
layer { name: "pool" type: "Pooling" bottom: "conv" top: "pool" pooling_param { pool: MAX kernel_size: 2 stride: 2 } }
layer { name: "norm" type: "LRN" bottom: "pool" top: "norm" lrn_param { local_size: 3 alpha: 0.1 beta: 0.75 } }
layer { name: "ip" type: "InnerProduct" bottom: "norm" top: "ip" inner_product_param { num_output: 5
  weight_filler { type: "xavier" } } include { phase: TRAIN } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "l" top: "loss" loss_param { ignore_label: 3 } }
"""
SOLVER = """
net: "solved.prototxt"
base_lr: 0.01
lr_policy: "step"
gamma: 0.1
stepsize: 10
momentum: 0.9
weight_decay: 0.0005
max_iter: 100
snapshot: 50
snapshot_prefix: "snap"
type: "SGD"
random_seed: 1
"""
CLUSTER = 'workflow = "SC-OBR"\nsync = "reduce-bcast"\nreduce = "cb-8"\nchain-size = 4\nbucket-bytes = "4M"\n'


@dataclass
class Kind:
    """A file to be damaged: its content while it is good, where it stands, and what reads it."""

    name: str
    good: bytes
    path: Path
    read: Callable[[], object]


def make(home: Path) -> list[Kind]:
    """Write good files under `home`, the working directory, and return all kinds."""
    nets.write_images(home / "db", 20, (1, 4, 4))
    (home / "solved.prototxt").write_text(nets.softmax_regression("db"))
    net = home / "good.prototxt"
    net.write_text(NET)
    built = scaffe.Net(str(net), scaffe.TRAIN, compute=Compute("reference"))
    for suffix in (".caffemodel", ".caffemodel.h5"):
        for name in ("sealed", "good"):
            built.save(home / f"{name}{suffix}")
        unseal(home / f"good{suffix}")  # else a change would be noticed before anything else is looked at
    return [*texts(home), *weights(home, built), *images(home), *databases(home), *lists(home), *tables(home)]


def kind(home: Path, name: str, good: bytes | str, file: str, read: Callable[[Path], object]) -> Kind:
    path = home / file
    return Kind(name, good.encode() if isinstance(good, str) else good, path, lambda: read(path))


def build(path: Path) -> None:
    scaffe.Net(str(path), scaffe.TRAIN, compute=Compute("reference")).forward()


def texts(home: Path) -> list[Kind]:
    layers = [
        V1LayerParameter(layer=V0LayerParameter(name="conv1", type="conv", num_output=2), top=["a"], bottom=["b"])
    ]
    v0 = NetParameter(name="old", layers=layers, input=["b"], input_dim=[1, 1, 4, 4])
    v1 = NetParameter(
        name="old", layers=[V1LayerParameter(name="r", type="RELU", top=["a"], bottom=["b"], blobs_lr=[1])]
    )
    present = read_net(home / "good.prototxt")
    return [
        kind(home, "net", NET, "net.prototxt", build),
        kind(home, "solver", SOLVER, "solver.prototxt", solve),
        kind(home, "v0-text", str(v0), "v0.prototxt", read_net),
        *(
            kind(home, name, old.SerializeToString(), f"{name}.caffemodel", upgrade)
            for name, old in {"v0-binary": v0, "v1-binary": v1, "present-binary": present}.items()
        ),
    ]


def upgrade(path: Path) -> None:
    read_weights(path)
    upgrade_net_file(path, path.with_suffix(".new.prototxt"))


def solve(path: Path) -> None:
    from scaffe.training.solver import Solver

    Solver(read_solver(path), compute=Compute(engine="reference")).close()


def weights(home: Path, built: scaffe.Net) -> list[Kind]:
    state = SolverState(iter=4, learned_net="good.caffemodel", current_step=1, random_seed=3, solver_type="SGD")
    state.position.add(net="train", layer="images", samples=32, records=20, shuffle="none")
    shapes = [blob.shape for blobs in built.params.values() for blob in blobs]
    from scaffe.proto import blobs, hdf5

    h5 = home / "good.solverstate.h5"
    h5.write_bytes(hdf5.encode_solver_state(state, [np.zeros(shape, np.float32) for shape in shapes]))
    for shape in shapes:
        state.history.add().MergeFromString(blobs.encode(np.zeros(shape, np.float32)))

    def restore(path: Path) -> None:
        read_solver_state(path, shapes)
        read_solver_state(path)

    return [
        kind(home, "caffemodel", (home / "good.caffemodel").read_bytes(), "it.caffemodel", built.copy_from),
        kind(home, "caffemodel-h5", (home / "good.caffemodel.h5").read_bytes(), "it.caffemodel.h5", built.copy_from),
        *(
            kind(home, f"sealed{name}", (home / f"sealed{name}").read_bytes(), f"changed{name}", built.copy_from)
            for name in (".caffemodel", ".caffemodel.h5")
        ),
        kind(home, "solverstate", state.SerializeToString(), "it.solverstate", restore),
        kind(home, "solverstate-h5", unseal(h5).read_bytes(), "it.solverstate.h5", restore),
        kind(home, "layer", LayerParameter(name="x", type="ReLU").SerializeToString(), "l.caffemodel", read_weights),
    ]


def images(home: Path) -> list[Kind]:
    pixels = np.random.default_rng(0).integers(0, 255, (12, 10, 3)).astype(np.uint8)
    found = []
    for form in ("JPEG", "PNG"):
        file = io.BytesIO()
        Image.fromarray(pixels).save(file, form)
        name = f"image.{form.lower()}"
        (home / name).write_bytes(file.getvalue())
        found.append(kind(home, form.lower(), file.getvalue(), f"it.{form.lower()}", scaffe.io.load_image))
    readers.write_mean(home / "good.binaryproto", np.zeros((3, 4, 4), np.float32))
    mean = (home / "good.binaryproto").read_bytes()
    return [*found, kind(home, "mean", mean, "mean.binaryproto", readers.read_mean)]


def every_record(path: Path) -> None:
    reader = readers.open_database(path)
    for _, value in reader.read(range(len(reader))):
        reader.decode(value)
    reader.close()


def databases(home: Path) -> list[Kind]:
    """An LMDB's meta pages (its tail is put back), a LevelDB's table, and a record."""
    whole = (home / "db/data.mdb").read_bytes()
    shutil.copytree(home / "db", home / "meta")

    def meta(path: Path) -> None:
        """Open the file with these meta pages, and the rest as it was."""
        head = path.read_bytes()
        with tempfile.TemporaryDirectory(dir=home) as folder:
            Path(folder, "data.mdb").write_bytes(head + whole[len(head) :] if len(head) >= META else head)
            readers.LMDBReader(folder)

    record = readers.encode(np.zeros((3, 4, 4), np.uint8), 2)
    file = io.BytesIO()
    Image.new("RGB", (4, 4)).save(file, "PNG")
    encoded = readers.datum.Datum(encoded=True, data=file.getvalue(), label=1).SerializeToString()
    found = [
        kind(home, "lmdb-meta", whole[:META], "meta.bin", meta),
        kind(home, "datum", record, "datum.bin", lambda path: decode(path.read_bytes())),
        kind(home, "datum-encoded", encoded, "encoded.bin", lambda path: decode(path.read_bytes())),
    ]
    return found + leveldb(home)


META = 8192


def leveldb(home: Path) -> list[Kind]:
    try:
        import plyvel
    except ImportError:
        return []
    database = plyvel.DB(str(home / "leveldb"), create_if_missing=True)
    for i in range(20):
        database.put(b"%08d" % i, readers.encode(np.zeros((1, 4, 4), np.uint8), i % 10))
    database.close()
    [log] = (home / "leveldb").glob("*.log")
    return [Kind("leveldb", log.read_bytes(), log, lambda: every_record(home / "leveldb"))]


def lists(home: Path) -> list[Kind]:
    import h5py

    with h5py.File(home / "good.h5", "w") as file:
        file["y"] = np.arange(12, dtype="f4").reshape(4, 3)
        file.create_dataset("z", data=np.zeros((4, 2)), chunks=(2, 2), compression="gzip")
    (home / "h5list").write_text("rows.h5\n")
    windows = "# 0\nimage.png\n3\n12\n10\n2\n1 0.8 1 1 7 8\n2 0.1 0 0 4 4\n"

    def rows(path: Path) -> None:
        reader = readers.HDF5Reader(home / "h5list", ["y", "z"])
        if sum(int(np.prod(shape)) for shape in reader.shapes) > 1 << 20 or len(reader) > 1 << 20:
            return  # as large as somebody says it is
        out = [np.zeros((min(len(reader), 9), *shape), np.float32) for shape in reader.shapes]
        reader.read(np.arange(min(len(reader), 9)), out)
        reader.close()

    def listed(path: Path) -> None:
        reader = readers.ImageReader(str(path))
        for index in range(len(reader)):
            for _, value in reader.read([index]):
                reader.decode(value)

    def window(path: Path) -> None:
        reader = readers.WindowReader(str(path))
        for number in range(len(reader._names)):
            reader.image(number)

    return [
        kind(home, "hdf5-data", (home / "good.h5").read_bytes(), "rows.h5", rows),
        kind(home, "hdf5-list", "good.h5 good.h5\n", "it.h5list", lambda path: readers.HDF5Reader(path, ["y"])),
        kind(home, "image-list", "image.png 0\nimage.jpeg 1\n", "it.list", listed),
        kind(home, "window-file", windows, "it.windows", window),
    ]


def tables(home: Path) -> list[Kind]:
    profile = {"device": "a GPU", "layers": [{"name": "x", "forward": 0.1, "backward": 0.2}]}
    built = scaffe.Net(str(home / "good.prototxt"), scaffe.TRAIN, compute=Compute("reference"))
    from scaffe.tools import benchmark

    replay.profile(built, benchmark.measure(built, 1)).save(home / "good.json")
    profile = (home / "good.json").read_text()
    table = json.dumps([
        {"op": "reduce", "nodes": 1, "ranks": 2, "shared": True, "from_bytes": 0,
         "algorithm": "slices", "seconds": 1e-5}
    ])  # fmt: skip

    def timeline(path: Path) -> None:
        list(advice.lines(summarise(read_trace(path))))

    def chosen(path: Path) -> None:
        table = tuning.load(path)
        for nbytes in (0, 1 << 20):
            table.choose("reduce", tuning.Shape(1, 2), True, nbytes)
        table.line("reduce", tuning.Shape(1, 2), True)

    return [
        kind(home, "profile", profile, "it.json", replay.load),
        kind(home, "plan", "convolution 1 x 2: direct\nip: gemm\n", "it.plan", lambda path: choices.Choices(str(path))),
        kind(home, "cluster", CLUSTER, "cluster.toml", read_settings),
        kind(home, "timeline", json.dumps(TIMELINE), "t.json", timeline),
        kind(home, "table", table, "table.json", chosen),
    ]


def span(category: str, name: str, begin: float, length: float, track: int = 0) -> dict:
    return {"ph": "X", "pid": 0, "tid": track, "cat": category, "name": name, "ts": begin, "dur": length, "args": {}}


TIMELINE = {
    "traceEvents": [
        {"ph": "M", "pid": 0, "tid": 0, "name": "process_name", "args": {"name": "rank 0"}},
        {"ph": "M", "pid": 0, "tid": 0, "name": "thread_name", "args": {"name": "main"}},
        span("iteration", "0", 0, 100),
        span("iteration", "1", 100, 90),
        span("forward", "ip", 1, 20),
        span("wait", "b0", 30, 20),
    ],
    "otherData": {"run": {"workflow": "SC-B"}, "buckets": {"b0": 100}},
}
