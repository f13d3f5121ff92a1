"""HDF5Output: the rows of all passes, in one file on one rank, in one for each of several."""

from __future__ import annotations

import os

import numpy as np
import pytest
from over_ranks import net_of, run

from readers import SourceError
from scaffe.context import TEST
from scaffe.errors import NetError, ShapeError

h5py = pytest.importorskip("h5py", reason="h5py is not installed")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working directory, with a list of an HDF5 file of 10 rows."""
    monkeypatch.chdir(tmp_path)
    with h5py.File("in.h5", "w") as file:
        file["x"], file["y"] = np.random.RandomState(0).rand(10, 3, 2), np.arange(10)
    (tmp_path / "list").write_text("in.h5")
    return tmp_path


NET = """
layer { name: "d" type: "HDF5Data" top: "x" top: "y" hdf5_data_param { source: "list" batch_size: 4 } }
layer { name: "out" type: "HDF5Output" bottom: "x" bottom: "y" hdf5_output_param { file_name: "out.h5" } }
"""


def stored(path):
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


def test_all_passes_are_there_once_the_net_is_closed(folder):
    net = net_of(NET)
    passes = run(net, 3)
    assert not os.path.exists("out.h5")
    net.close()
    data = stored("out.h5")
    assert {name: (values.dtype, values.shape) for name, values in data.items()} == {
        "data": (np.float32, (12, 3, 2, 1)),
        "label": (np.float32, (12, 1, 1, 1)),
    }
    np.testing.assert_array_equal(data["data"][..., 0], np.concatenate([blobs["x"] for blobs in passes]))
    np.testing.assert_array_equal(data["label"].ravel(), np.arange(12) % 10)


def test_what_is_written_is_read_by_hdf5data(folder):
    net = net_of(NET)
    [blobs] = run(net, 1)
    net.close()
    (folder / "back").write_text("out.h5")
    again = net_of(
        'layer { name: "d" type: "HDF5Data" top: "data" hdf5_data_param { source: "back" batch_size: 4 } }', phase=TEST
    )
    np.testing.assert_array_equal(run(again, 1)[0]["data"][..., 0], blobs["x"])


@pytest.mark.parametrize("scaling", ["strong", "weak"])
def test_each_of_several_ranks_writes_its_own_rows_and_their_numbers(folder, scaling):
    for rank in range(3):
        net = net_of(NET, rank=rank, size=3, scaling=scaling, file_mark=f".rank{rank}of3")
        run(net, 4)
        net.close()
    parts = [stored(f"out.rank{rank}of3.h5") for rank in range(3)]
    rows = np.concatenate([part["row"] for part in parts])
    labels = np.concatenate([part["label"] for part in parts]).ravel()
    assert sorted(rows) == list(range(48 if scaling == "weak" else 16))
    np.testing.assert_array_equal(labels, rows % 10)


def test_ranks_that_test_number_the_rows_of_their_own_batches(folder):
    for rank, numbers in enumerate([[0, 2], [1, 3]]):
        net = net_of(NET, phase=TEST, batch_numbers=lambda mine=numbers: iter(mine), file_mark=f".rank{rank}of2")
        run(net, 2)
        net.close()
        part = stored(f"out.rank{rank}of2.h5")
        assert part["row"].tolist() == [4 * number + i for number in numbers for i in range(4)]
        np.testing.assert_array_equal(part["label"].ravel(), part["row"] % 10)


def test_a_net_that_never_ran_writes_nothing(folder):
    (folder / "out.h5").write_text("older")
    net_of(NET).close()
    assert (folder / "out.h5").read_text() == "older"
    assert sorted(os.listdir()) == ["in.h5", "list", "out.h5"]


def test_what_is_wrong_is_named(folder):
    with pytest.raises(NetError, match=r"layer 'out' \(HDF5Output\): hdf5_output_param needs a file_name"):
        net_of(NET.replace('"out.h5"', '""'))
    with pytest.raises(SourceError, match="HDF5 file nowhere/out.h5: no such folder: nowhere"):
        net_of(NET.replace('"out.h5"', '"nowhere/out.h5"'))
    half = 'layer { name: "s" type: "Slice" bottom: "y" top: "a" top: "b" slice_param { axis: 0 } }'
    data, output = NET.strip().splitlines()
    with pytest.raises(ShapeError, match=r"as many labels as rows of data, got \(4, 3, 2\) and \(2,\)"):
        net_of(data + half + output.replace('"y"', '"b"'))
