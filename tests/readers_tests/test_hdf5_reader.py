"""HDF5 files of a list read as if they were one, written complete or not at all."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from readers import HDF5Reader, HDF5Writer, ReaderError, SourceError

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

ROWS = [5, 0, 3, 7]
IMAGES = np.random.RandomState(0).rand(sum(ROWS), 2, 3)
LABELS = np.arange(100, 100 + sum(ROWS))


def write(path, **datasets):
    with h5py.File(path, "w") as file:
        for name, values in datasets.items():
            file[name] = values


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Four files and their list; each keeps its numbers in another type."""
    folder = tmp_path_factory.mktemp("hdf5")
    types = ["f4", "f8", "f2", "f8"], ["u1", "i8", "i4", "f4"]
    for number, stop in enumerate(np.cumsum(ROWS)):
        rows = np.s_[stop - ROWS[number] : stop]
        images, labels = IMAGES[rows].astype(types[0][number]), LABELS[rows].astype(types[1][number])
        write(folder / f"{number}.h5", image=images, label=labels)
    (folder / "list").write_text("".join(f"{folder}/{number}.h5\n" for number in range(4)))
    return folder


def read(reader, indices):
    out = [np.zeros((len(indices), *shape), np.float32) for shape in reader.shapes]
    reader.read(np.asarray(indices), out)
    return out


@settings(max_examples=30)
@given(st.lists(st.integers(0, sum(ROWS) - 1), min_size=1, max_size=30))
def test_rows_are_read_in_any_order(folder, indices):
    reader = HDF5Reader(folder / "list", ["label", "image"])
    labels, images = read(reader, indices)
    np.testing.assert_array_equal(labels, LABELS[indices])
    np.testing.assert_allclose(images, IMAGES[indices], rtol=1e-3)  # some are float16 in the file
    reader.close()


def test_numbers_are_rounded_to_float32_as_numpy_does(folder):
    reader = HDF5Reader(folder / "list", ["image"])
    np.testing.assert_array_equal(read(reader, range(8, 15))[0], IMAGES[8:].astype(np.float32))


def test_a_row_is_called_by_its_file_and_its_number_there(folder):
    reader = HDF5Reader(folder / "list", ["image"])
    assert [reader.describe(index) for index in (0, 4, 5, 14)] == [
        f"{folder}/0.h5: row 0",
        f"{folder}/0.h5: row 4",
        f"{folder}/2.h5: row 0",
        f"{folder}/3.h5: row 6",
    ]


@pytest.mark.parametrize(
    ("datasets", "message"),
    [
        ({"image": IMAGES}, r"no dataset 'label', which is the name of a top; datasets here: image"),
        ({"image": IMAGES, "label": LABELS[1:]}, "expected as many rows in each dataset, got 15 in 'image', 14 in"),
        ({"image": IMAGES[:, 1:], "label": LABELS}, "rows of 'image' are 1 x 3, but in the first file 2 x 3"),
        ({"image": IMAGES, "label": np.array([b"cat"] * 15)}, "expected numbers in 'label', got"),
        ({"image": IMAGES, "label": 3}, "expected rows in 'label', got a scalar"),
    ],
)
def test_a_file_that_does_not_fit_is_named_with_its_line(folder, tmp_path, datasets, message):
    write(tmp_path / "other.h5", **datasets)
    (tmp_path / "list").write_text(f"{folder}/0.h5\n\n{tmp_path}/other.h5\n")
    with pytest.raises(SourceError, match=rf"HDF5 file {tmp_path}/other.h5 \({tmp_path}/list:3\): {message}"):
        HDF5Reader(tmp_path / "list", ["image", "label"])


def test_what_can_not_be_read_is_named(folder, tmp_path):
    write(tmp_path / "none.h5", image=IMAGES[:0])
    (tmp_path / "text.h5").write_text("text")
    os.mkfifo(tmp_path / "pipe.h5")
    pipe = os.open(tmp_path / "pipe.h5", os.O_RDWR)  # so that who opens it does not wait
    lists = {
        f"{tmp_path}/pipe.h5": r"HDF5 file .*/pipe.h5 \(.*/list:1\): .*is a device or a pipe; name a file",
        "nowhere.h5\n": r"HDF5 file nowhere.h5 \(.*/list:1\): .*no such file or directory",
        f"{tmp_path}/text.h5": r"HDF5 file .*/text.h5 \(.*/list:1\): .*file signature not found",
        f"{tmp_path}/none.h5": "the HDF5 files in this list hold no rows",
        "\n": "expected the names of HDF5 files, got none",
    }
    for content, message in lists.items():
        (tmp_path / "list").write_text(content)
        with pytest.raises(SourceError, match=message):
            HDF5Reader(tmp_path / "list", ["image"])
    with pytest.raises(SourceError, match=r"HDF5 list .*/missing: no such file"):
        HDF5Reader(tmp_path / "missing", ["image"])
    with pytest.raises(SourceError, match="got an HDF5 file"):
        HDF5Reader(folder / "0.h5", ["image"])
    os.close(pipe)


def test_a_file_that_shrinks_under_the_reader_is_named(tmp_path):
    write(tmp_path / "a.h5", image=IMAGES)
    (tmp_path / "list").write_text(f"{tmp_path}/a.h5")
    reader = HDF5Reader(tmp_path / "list", ["image"])
    write(tmp_path / "a.h5", image=IMAGES[:4])
    with pytest.raises(SourceError, match="a.h5: rows 3 to 5 can't be read: the file has changed"):
        read(reader, [3, 4, 5])


def test_without_h5py_it_is_said_what_to_install(folder, monkeypatch):
    monkeypatch.setitem(sys.modules, "h5py", None)
    for make in (lambda: HDF5Reader(folder / "list", ["image"]), lambda: HDF5Writer("out.h5")):
        with pytest.raises(ReaderError, match=r"pip install 'scaffe\[hdf5\]'"):
            make()


# Writing.


def stored(path):
    with h5py.File(path) as file:
        return {name: dataset[()] for name, dataset in file.items()}


def test_rows_are_appended_and_there_when_closed(tmp_path):
    path = tmp_path / "out.h5"
    path.write_bytes(b"older")
    writer = HDF5Writer(path)
    for start in (0, 4, 5):
        writer.append(data=IMAGES[start : start + 4].astype(np.float32), label=LABELS[start : start + 4])
    assert path.read_bytes() == b"older"
    writer.close()
    writer.close()
    rows = [0, 1, 2, 3, 4, 5, 6, 7, 5, 6, 7, 8]
    assert os.listdir(tmp_path) == ["out.h5"]
    np.testing.assert_array_equal(stored(path)["data"], IMAGES[rows].astype(np.float32))
    np.testing.assert_array_equal(stored(path)["label"], LABELS[rows])


def test_a_writer_that_is_forgotten_completes_its_file(tmp_path):
    writer = HDF5Writer(tmp_path / "out.h5")
    writer.append(data=IMAGES)
    del writer
    gc.collect()
    np.testing.assert_array_equal(stored(tmp_path / "out.h5")["data"], IMAGES)


def test_a_program_that_ends_completes_its_file(tmp_path):
    code = "import numpy, readers; w = readers.HDF5Writer('out.h5'); w.append(data=numpy.ones((3, 2)))"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")
    np.testing.assert_array_equal(stored(tmp_path / "out.h5")["data"], np.ones((3, 2)))


def test_what_can_not_be_written_leaves_nothing(tmp_path):
    with pytest.raises(SourceError, match="no such folder"):
        HDF5Writer(tmp_path / "nowhere/out.h5")
    writer = HDF5Writer(tmp_path / "out.h5")
    writer.append(data=IMAGES)
    with pytest.raises(SourceError, match="rows of 'data' were 2 x 3 and now are 3"):
        writer.append(data=IMAGES[:, 0])
    writer.discard()
    writer.close()
    assert os.listdir(tmp_path) == []
