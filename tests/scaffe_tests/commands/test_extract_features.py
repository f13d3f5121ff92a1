"""scaffe extract-features: what is written is what the net's blobs hold, in Caffe's form, or nothing."""

import re

import nets
import numpy as np
import pytest

import scaffe
from readers import LevelDBReader, LMDBReader, encode, open_database, write_lmdb
from scaffe.cli import main
from scaffe.proto import Datum

BATCH, BATCHES = 8, 4  # of 20 records: the third batch goes round the end


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a net, its weights and its test data."""
    monkeypatch.chdir(tmp_path)
    nets.write_images(tmp_path / "db", 20)
    (tmp_path / "net.prototxt").write_text(nets.lenet("db", BATCH, dropout=True))
    net = scaffe.Net("net.prototxt", scaffe.TEST)
    net.save("w.caffemodel")
    net.close()
    return tmp_path


@pytest.fixture
def expected(folder):
    """The blobs of the batches, one after the other."""
    net = scaffe.Net("net.prototxt", "w.caffemodel", scaffe.TEST)
    batches = []
    for _ in range(BATCHES):
        net.forward()
        batches.append({name: np.atleast_1d(blob.data.copy()) for name, blob in net.blobs.items()})
    net.close()
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def run(arguments):
    return main(["extract-features", *arguments.split()])


def records(db):
    with LMDBReader(db) as reader:
        return [(key, Datum.FromString(value)) for key, value in reader.read(range(len(reader)))]


def test_an_lmdb_has_datums_of_floats_in_the_samples_order(folder, expected):
    line = "extract_features w.caffemodel net.prototxt pool1,ip1,loss f_pool,f_ip,f_loss 4 lmdb CPU"
    assert main(line.split()) == 0
    shapes = {"pool1": (20, 12, 12), "ip1": (500, 1, 1), "loss": (1, 1, 1)}
    for (blob, shape), db in zip(shapes.items(), ("f_pool", "f_ip", "f_loss"), strict=True):
        found = records(db)
        assert [key for key, _ in found] == [b"%010d" % i for i in range(len(expected[blob]))]
        for (_, datum), values in zip(found, expected[blob], strict=True):
            assert (datum.channels, datum.height, datum.width) == shape
            assert not (datum.data or datum.HasField("label") or datum.HasField("encoded"))
            np.testing.assert_array_equal(np.array(datum.float_data, np.float32), values.reshape(-1))


def test_a_leveldb_has_the_datums_of_the_lmdb(folder):
    pytest.importorskip("plyvel", reason="plyvel is not installed")
    assert run("w.caffemodel net.prototxt ip1 a 2 leveldb") == run("w.caffemodel net.prototxt ip1 b 2 lmdb") == 0
    with open_database("a") as reader:
        assert isinstance(reader, LevelDBReader)
        assert [(key, Datum.FromString(value)) for key, value in reader.read(range(len(reader)))] == records("b")


def test_features_can_be_read_as_data(folder, expected):
    assert run("w.caffemodel net.prototxt pool1 f 4") == 0
    (folder / "read.prototxt").write_text(
        'layer { name: "d" type: "Data" top: "f" data_param { source: "f" batch_size: 32 backend: LMDB } }'
    )
    net = scaffe.Net("read.prototxt", scaffe.TEST)
    np.testing.assert_array_equal(net.forward()["f"], expected["pool1"])
    net.close()


def test_a_npy_file_holds_all_samples(folder, expected):
    assert run("w.caffemodel net.prototxt ip1,label f.npy,l.npy 4 --db npy") == 0
    np.testing.assert_array_equal(np.load("f.npy"), expected["ip1"])
    np.testing.assert_array_equal(np.load("l.npy"), expected["label"])


def test_an_hdf5_file_has_a_dataset_with_the_blobs_name(folder, expected):
    h5py = pytest.importorskip("h5py")
    assert run("w.caffemodel net.prototxt ip1 f.h5 4 hdf5") == 0
    with h5py.File("f.h5") as file:
        assert list(file) == ["ip1"]
        np.testing.assert_array_equal(file["ip1"][()], expected["ip1"])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("no net.prototxt ip1 f 4", "no: no such file"),
        ("w.caffemodel no ip1 f 4", "no: no such file"),
        ("w.caffemodel net.prototxt ip9 f 4", "no blob 'ip9' in net 'LeNet'; its blobs: data label"),
        ("w.caffemodel net.prototxt ip1,ip2 f 4", "2 blob.s. ip1,ip2 for 1 output.s. f: name one for each"),
        ("w.caffemodel net.prototxt ip1,ip2 f,f 4", "each output must be named once, got f,f"),
        ("w.caffemodel net.prototxt ip1,ip1 f,g 4", "each blob must be named once, got ip1,ip1"),
        ("w.caffemodel net.prototxt ip1 db 4", "db exists already"),
        ("w.caffemodel net.prototxt ip1,ip2 f,db 4", "db exists already"),
        ("w.caffemodel net.prototxt ip1 no/f 4", "no/f: can't be written: no such file"),
        ("w.caffemodel net.prototxt ip1 no/f.npy 4 npy", "no/f.npy: no such folder: no"),
        ("w.caffemodel net.prototxt ip1 f 0", "--iterations must be 1 or more, got 0"),
        ("w.caffemodel net.prototxt ip1 f many", "invalid int value: 'many'"),
        ("w.caffemodel net.prototxt ip1 f 4 rocksdb", "invalid choice: 'rocksdb' .*lmdb"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb --db npy", "--db npy contradicts the format lmdb"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb GPU first", "expected a GPU's number such as 0, got 'first'"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb CPU --gpu 0", "CPU and a GPU's flag say two things"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb CPU --device cuda", "CPU and a GPU's flag say two things"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb GPU --device cpu", "GPU and --device or --gpu say two things"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb GPU 1 --gpu 0", "GPU and --device or --gpu say two things"),
        ("w.caffemodel net.prototxt ip1 f 4 lmdb GPU", "a GPU needs cupy|no GPU|no NVIDIA driver|no such file"),
    ],
)
def test_a_wrong_command_is_told_in_one_line_and_writes_nothing(folder, capsys, arguments, said):
    before = sorted(folder.rglob("*"))
    try:
        code = run(arguments)
    except SystemExit as end:
        code = end.code
    [line] = [line for line in capsys.readouterr().err.splitlines() if line.startswith("scaffe: ")]
    assert code == 2
    assert re.search(said, line)
    assert sorted(folder.rglob("*")) == before


def test_a_record_that_can_not_be_read_leaves_nothing(folder, capsys):
    good = encode(np.zeros((1, 28, 28), np.uint8), 0)
    write_lmdb("db", [(b"%02d" % i, b"no datum" if i == 12 else good) for i in range(20)], replace=True)
    before = sorted(folder.rglob("*"))
    assert run("w.caffemodel net.prototxt ip2,ip1 f,g 4") == 2
    assert "record '12'" in capsys.readouterr().err
    assert sorted(folder.rglob("*")) == before
