"""Errors: each is also of the built-in class that pycaffe raises in its place."""

import pickle

import numpy as np
import pytest

import scaffe
from scaffe import errors
from scaffe.files import snapshot
from scaffe.proto.files import read_weights


@pytest.mark.parametrize("kind", [RuntimeError, OSError, scaffe.ScaffeError])
def test_a_file_that_is_missing(tmp_path, kind):
    for read in (scaffe.Net, lambda path, _: read_weights(path)):
        with pytest.raises(kind, match=r"none.prototxt: no such file or directory"):
            read(str(tmp_path / "none.prototxt"), scaffe.TEST)


def test_hdf5_weights_of_another_kind_keep_their_message(tmp_path):
    h5py = pytest.importorskip("h5py")
    with h5py.File(tmp_path / "w.h5", "w") as file:
        file["other"] = np.zeros(3)
    with pytest.raises(errors.PrototxtError, match=r"^\S*w.h5: no group data in it$"):
        read_weights(tmp_path / "w.h5")


def test_a_prefix_that_another_job_has_keeps_its_message(tmp_path):
    first = snapshot.lock(str(tmp_path / "x"))
    first.take()
    (tmp_path / "x.lock").write_text("another host 1 2\n")
    with pytest.raises(errors.SnapshotError, match=r"^snapshot_prefix '[^']*': another job"):
        first.take()
    first.release()


@pytest.mark.parametrize("kind", [errors.FileError, errors.UnknownBlobError, errors.CallError, errors.ShapeError])
def test_texts_are_shown_as_they_are_and_pass_from_process_to_process(kind):
    error = pickle.loads(pickle.dumps(kind("net 'a': no blob 'b'")))
    assert type(error) is kind
    assert str(error) == "net 'a': no blob 'b'"
