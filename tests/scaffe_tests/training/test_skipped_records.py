"""Training over bad records: told which, counted, and ended where they are too many."""

from __future__ import annotations

import os
import re

import nets
import numpy as np
import over_ranks
import pytest
from bad_input import Refused, edit, grey, train, trainable, write_records
from PIL import Image

from readers import Reading, RecordError
from scaffe.cli import main
from scaffe.proto import Datum

SKIP = ("--bad-records", "skip")
NO_IMAGE = Datum(encoded=True, data=b"no image").SerializeToString()


@pytest.fixture
def folder(tmp_path, monkeypatch):
    return trainable(tmp_path, monkeypatch)


@pytest.fixture
def refused(folder, capsys):
    return Refused(folder, capsys)


def trained(capsys, *flags):
    """Train; return the log."""
    assert main([*train(), *flags]) == 0
    return capsys.readouterr().err


@pytest.mark.parametrize(
    ("odd", "said"),
    [
        (grey(label=10), "label 10 is outside the classes 0 to 9"),
        (grey(label=-1), "label -1 is outside the classes 0 to 9"),
        (grey(side=5), "is 1 x 5 x 5, but the first record is 1 x 4 x 4"),
        (NO_IMAGE, "can't be decoded as an image"),
        (b"\xff\xff\xff", "3 bytes that are not a Datum"),
    ],
    ids=["label too large", "negative label", "another size", "undecodable image", "no Datum"],
)
def test_a_bad_record_is_told_counted_and_passed_over(folder, capsys, odd, said):
    write_records(*[grey()] * 5, odd, *[grey()] * 5)
    log = trained(capsys, *SKIP)  # 4 batches of 8, records 0 to 31 of 11: record 5 comes three times
    assert len(re.findall(rf"W.*layer 'images': passed over a bad record: .*db.*'00000005'.*{said}", log)) == 1
    assert "Bad records: 3 of 35 read were replaced by others (rank 0: 3)" in log


def test_good_records_are_told_to_be_good(folder, capsys):
    assert "Bad records: 0 of 32 read were replaced by others\n" in trained(capsys, *SKIP)


def test_a_bad_first_record_is_passed_over_too(folder, capsys):
    write_records(NO_IMAGE, *[grey()] * 31)
    assert "Bad records: 1 of 33 read" in trained(capsys, *SKIP)


def test_more_bad_records_than_allowed_end_the_run_at_that_iteration(refused):
    write_records(*[grey()] * 10, NO_IMAGE, *[grey()] * 6, NO_IMAGE, *[grey()] * 20)
    edit("solver.prototxt", "snapshot: 2", "snapshot: 0")
    line = refused(*train(), *SKIP, "--max-bad-records", "0.001")
    assert line == (
        "scaffe: 2 of 26 records read so far are bad, more than 0.001 of 1000: mend them (the log names the first), "
        "or raise --max-bad-records"
    )


def test_no_bad_record_is_passed_over_where_none_is_allowed(refused):
    write_records(*[grey()] * 5, NO_IMAGE, *[grey()] * 5)
    assert "'00000005': can't be decoded as an image" in refused(*train(), *SKIP, "--max-bad-records", "0")


def test_an_ignored_label_is_no_bad_record(folder, capsys):
    edit("net.prototxt", 'type: "SoftmaxWithLoss"', 'type: "SoftmaxWithLoss" loss_param { ignore_label: -1 }')
    write_records(*[grey()] * 5, grey(label=-1), *[grey()] * 26)
    assert "Bad records: 0 of 32 read" in trained(capsys, *SKIP)


def test_only_the_first_bad_records_are_told(folder, capsys):
    write_records(*[grey(), NO_IMAGE] * 8)
    log = trained(capsys, *SKIP, "--max-bad-records", "1")
    assert len(re.findall("passed over a bad record", log)) == 5
    assert len(re.findall("further bad records are only counted", log)) == 1
    assert "Bad records: 16 of 48 read" in log


def test_a_label_behind_a_split_is_known_to_the_data_layer(folder):
    accuracy = 'layer { name: "accuracy" type: "Accuracy" bottom: "ip" bottom: "label" top: "accuracy" }'
    net = over_ranks.net_of(nets.softmax_regression("db", outputs=6) + accuracy)
    assert [(one.array, one.classes, one.ignore) for one in net.layers[0].labels] == [(1, 6, None)] * 2


WINDOWS = """
layer {
  name: "w" type: "WindowData" top: "data" top: "label" transform_param { crop_size: 6 mirror: true }
  window_data_param { source: "windows" batch_size: 12 fg_fraction: 0.5 }
}
"""


@pytest.fixture
def windows(tmp_path, monkeypatch):
    """Ten images with a foreground and a background window each; one image is missing, one window is outside."""
    monkeypatch.chdir(tmp_path)
    pixels = np.random.RandomState(0).randint(0, 256, (10, 9, 9, 3)).astype(np.uint8)
    text = ""
    for number, image in enumerate(pixels):
        Image.fromarray(image).save(f"{number}.png")
        box = "1 1 6 30" if number == 7 else "1 1 6 6"
        text += f"# {number}\n{number}.png 3 9 9 2\n{number + 1} 1 {box}\n0 0 2 2 8 7\n"
    (tmp_path / "windows").write_text(text)
    os.unlink("4.png")


def test_a_bad_window_gives_way_to_the_next_good_one_of_its_kind(windows):
    settings = Reading(bad_records="skip", max_bad_records=1)
    wholes = over_ranks.together(WINDOWS, 1, 8, reading=settings)
    over_ranks.assert_same(over_ranks.together(WINDOWS, 3, 8, reading=settings), wholes)
    labels = np.concatenate([blobs["label"] for blobs in wholes])
    assert {*labels} == {0, 1, 2, 3, 4, 6, 7, 9, 10}
    with pytest.raises(RecordError, match="4.png"):
        over_ranks.together(WINDOWS, 1, 8)


def test_a_label_of_an_hdf5_file_that_no_layer_takes_is_passed_over(tmp_path, monkeypatch):
    h5py = pytest.importorskip("h5py")
    monkeypatch.chdir(tmp_path)
    labels = np.arange(20.0)
    labels[3], labels[4], labels[12] = 1.5, -3, np.nan
    with h5py.File("a.h5", "w") as file:
        file["data"], file["label"] = np.arange(60.0).reshape(20, 3), labels
    (tmp_path / "list").write_text("a.h5")
    fields = 'hdf5_data_param { source: "list" batch_size: 5 }'
    data = f'layer {{ name: "d" type: "HDF5Data" top: "data" top: "label" {fields} }}'
    ip = 'layer { name: "ip" type: "InnerProduct" bottom: "data" top: "ip" inner_product_param { num_output: 20 } }'
    loss = 'layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" }'
    net = over_ranks.net_of(data + ip + loss, reading=Reading(bad_records="skip"))
    passes = over_ranks.run(net, 4)
    net.close()
    expected = [0, 1, 2, 5, 5, 5, 6, 7, 8, 9, 10, 11, 13, 13, 14, 15, 16, 17, 18, 19]
    assert np.concatenate([blobs["label"] for blobs in passes]).tolist() == expected
    assert np.concatenate([blobs["data"] for blobs in passes])[:, 0].tolist() == [3 * row for row in expected]
    assert (net.layers[0].bad_read, net.layers[0].records_read) == (4, 24)
