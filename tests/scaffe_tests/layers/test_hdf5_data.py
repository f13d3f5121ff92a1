"""HDF5Data: rows as they are in the files, shuffled alike on any number of ranks."""

from __future__ import annotations

import numpy as np
import pytest
from over_ranks import assert_same, net_of, run, together

from readers import SourceError
from scaffe.errors import NetError

h5py = pytest.importorskip("h5py", reason="h5py is not installed")

ROWS = [5, 3, 9]
TOTAL = sum(ROWS)
IMAGES = np.random.RandomState(0).rand(TOTAL, 2, 3).astype(np.float32)
NUMBERS = np.arange(TOTAL)


@pytest.fixture(scope="module")
def source(tmp_path_factory):
    folder = tmp_path_factory.mktemp("rows")
    for number, stop in enumerate(np.cumsum(ROWS)):
        with h5py.File(folder / f"{number}.h5", "w") as file:
            file["data"], file["number"] = IMAGES[stop - ROWS[number] : stop], NUMBERS[stop - ROWS[number] : stop]
            file["pair"] = np.stack([NUMBERS, -NUMBERS], 1)[stop - ROWS[number] : stop].astype(np.float64)
    (folder / "list").write_text("".join(f"{folder}/{number}.h5\n" for number in range(3)))
    return folder / "list"


def text(source, batch=4, shuffle="false", more=""):
    return f"""layer {{ name: "d" type: "HDF5Data" top: "number" top: "data" top: "pair" {more}
        hdf5_data_param {{ source: "{source}" batch_size: {batch} shuffle: {shuffle} }} }}"""


def test_tops_are_the_datasets_of_their_names_over_and_over(source):
    for t, blobs in enumerate(run(net_of(text(source)), 7)):
        rows = np.arange(4 * t, 4 * t + 4) % TOTAL
        np.testing.assert_array_equal(blobs["number"], NUMBERS[rows])
        np.testing.assert_array_equal(blobs["data"], IMAGES[rows])
        np.testing.assert_array_equal(blobs["pair"], np.stack([rows, -rows], 1))


def test_shuffled_rows_stay_together_and_files_are_done_with_one_by_one(source):
    passes = run(net_of(text(source, TOTAL, "true"), seed=5), 3)
    orders = [blobs["number"].astype(int) for blobs in passes]
    files = np.repeat([0, 1, 2], ROWS)
    for order, blobs in zip(orders, passes, strict=True):
        assert sorted(order) == NUMBERS.tolist()
        assert np.count_nonzero(np.diff(files[order])) == 2
        np.testing.assert_array_equal(blobs["data"], IMAGES[order])
    assert len({tuple(order) for order in orders}) == 3


@pytest.mark.parametrize("shuffle", ["false", "true"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_together_have_the_batches_of_one(source, size, shuffle):
    net = text(source, 7, shuffle)
    assert_same(together(net, size, 6, seed=5), run(net_of(net, seed=5), 6))
    weak = together(text(source, 2, shuffle), size, 4, scaling="weak", seed=5)
    assert_same(weak, run(net_of(text(source, 2 * size, shuffle), seed=5), 4))


def test_a_layer_goes_on_where_another_stood(source):
    straight = net_of(text(source, 6, "true"), seed=5)
    run(straight, 4)
    position = straight.layers[0].position
    resumed = together(text(source, 6, "true"), 3, 4, lambda net: net.layers[0].seek(position), seed=5)
    assert_same(resumed, run(straight, 4))


def test_a_label_outside_the_classes_is_named_by_its_file_and_row(source):
    loss = """layer { name: "l" type: "SoftmaxWithLoss" bottom: "pair" bottom: "number" top: "l" }
        layer { name: "s" type: "Silence" bottom: "data" }"""
    with pytest.raises(Exception, match=r"label 2 in row 2 \(.*/0.h5: row 2\) is outside the classes 0 to 1"):
        net_of(text(source) + loss).forward()


def test_what_is_wrong_is_named(source, tmp_path):
    with pytest.raises(NetError, match=r"layer 'd' \(HDF5Data\): does not transform data"):
        net_of(text(source, more="transform_param { scale: 2 }"))
    with pytest.raises(SourceError, match="no dataset 'label', which is the name of a top; datasets here: data, numb"):
        net_of(text(source).replace('"pair"', '"label"'))
    with pytest.raises(NetError, match="batch_size must be 1 or more, got 0"):
        net_of(text(source, 0))
