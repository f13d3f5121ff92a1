"""ImageData: Caffe's fields, the same batches on any number of ranks, in any order, after any stop."""

from __future__ import annotations

import numpy as np
import pytest
from over_ranks import assert_same, net_of, run, together
from PIL import Image

from readers import Reading, RecordError, SourceError
from scaffe.context import TEST
from scaffe.errors import NetError, SplitError

COUNT = 13


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Images of one colour each, their number, of two sizes; and a list of them."""
    folder = tmp_path_factory.mktemp("images")
    for number in range(COUNT):
        Image.new("RGB", (9 + number % 2, 7), (10 * number,) * 3).save(folder / f"{number}.png")
    (folder / "list").write_text("".join(f"{number}.png {number}\n" for number in range(COUNT)))
    return folder


def text(folder, batch=5, transform="", **fields):
    fields = {"source": f'"{folder}/list"', "root_folder": f'"{folder}/"', "new_height": 6, "new_width": 8} | fields
    listed = " ".join(f"{name}: {value}" for name, value in fields.items())
    return f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        transform_param {{ {transform} }} image_data_param {{ batch_size: {batch} {listed} }} }}"""


def labels(passes):
    return np.concatenate([blobs["label"] for blobs in passes]).astype(int).tolist()


def test_images_come_as_the_list_has_them_over_and_over(folder):
    passes = run(net_of(text(folder, transform="mean_value: 4 scale: 0.5")), 4)
    assert labels(passes) == [n % COUNT for n in range(20)]
    for blobs in passes:
        assert blobs["data"].shape == (5, 3, 6, 8)
        expected = (10 * blobs["label"] - 4) / 2
        np.testing.assert_array_equal(blobs["data"], np.broadcast_to(expected[:, None, None, None], (5, 3, 6, 8)))


def test_grey_images_have_one_channel(folder):
    [blobs] = run(net_of(text(folder, is_color="false")), 1)
    assert blobs["data"].shape == (5, 1, 6, 8)


def test_each_epoch_has_an_order_of_its_own_by_the_seed(folder):
    passes = {seed: labels(run(net_of(text(folder, batch=COUNT, shuffle="true"), seed=seed), 3)) for seed in (1, 2)}
    epochs = [passes[seed][k * COUNT : (k + 1) * COUNT] for seed in (1, 2) for k in range(3)]
    assert all(sorted(epoch) == list(range(COUNT)) for epoch in epochs)
    assert len(set(map(tuple, epochs))) == 6


@pytest.mark.parametrize("own", ["false", "true"])
def test_a_runs_order_counts_whatever_the_layers_shuffle_says_and_in_training_alone(folder, own):
    given = {"reading": Reading(shuffle="none"), "seed": 1}
    straight = list(range(COUNT))
    assert labels(run(net_of(text(folder, batch=COUNT, shuffle=own), **given), 1)) == straight
    tested = labels(run(net_of(text(folder, batch=COUNT, shuffle=own), phase=TEST, **given), 1))
    assert (tested == straight) == (own == "false")
    full = {"reading": Reading(shuffle="full"), "seed": 1}
    shuffled = labels(run(net_of(text(folder, batch=COUNT, shuffle=own), **full), 1))
    assert shuffled != straight and sorted(shuffled) == straight


@pytest.mark.parametrize("shuffle", ["false", "true"])
@pytest.mark.parametrize("size", [2, 3, 5])
def test_ranks_together_have_the_batches_of_one(folder, size, shuffle):
    net = text(folder, transform="crop_size: 5 mirror: true", shuffle=shuffle, rand_skip=4)
    assert_same(together(net, size, 4, seed=3), run(net_of(net, seed=3), 4))


def test_weak_scaling_has_the_batches_of_one_with_all_rows(folder):
    passes = together(text(folder, batch=2, shuffle="true"), 3, 4, scaling="weak", seed=3)
    assert_same(passes, run(net_of(text(folder, batch=6, shuffle="true"), seed=3), 4))


def test_a_layer_goes_on_where_another_stood(folder):
    net = text(folder, transform="crop_size: 5 mirror: true", shuffle="true")
    straight = net_of(net, seed=3)
    run(straight, 4)
    [position] = [layer.position for layer in straight.data_layers()]
    resumed = together(net, 2, 3, lambda net: net.layers[0].seek(position), seed=3)
    assert position == 20
    assert_same(resumed, run(straight, 3))


def test_a_rank_that_tests_reads_its_own_batches_whole(folder):
    passes = run(net_of(text(folder), phase=TEST, batch_numbers=lambda: iter([1, 3])), 2)
    assert labels(passes) == [n % COUNT for n in (*range(5, 10), *range(15, 20))]


def test_a_rank_opens_only_its_own_files(folder, tmp_path):
    half = tmp_path / "half"
    half.mkdir()
    for number in (0, 5, 6, 7, 8, 9):  # 0: every rank looks at the first image's shape
        (half / f"{number}.png").write_bytes((folder / f"{number}.png").read_bytes())
    net = net_of(text(folder, batch=10, root_folder=f'"{half}"'), rank=1, size=2)
    assert labels(run(net, 1)) == [5, 6, 7, 8, 9]


def test_images_alone_in_a_batch_keep_their_sizes(folder):
    net = text(folder, batch=1, new_height=0, new_width=0) + 'layer { type: "ReLU" bottom: "data" top: "y" name: "r" }'
    assert [blobs["y"].shape for blobs in run(net_of(net), 3)] == [(1, 3, 7, 9), (1, 3, 7, 10), (1, 3, 7, 9)]


@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        (
            {"new_width": 0},
            NetError,
            r"layer 'd' \(ImageData\): give both new_height and new_width or neither, got 6 an",
        ),
        ({"batch": 0}, NetError, "batch_size must be 1 or more, got 0"),
        ({"source": '""'}, NetError, "no source is given"),
        ({"root_folder": '"/nowhere/"'}, RecordError, r"image /nowhere/0.png \(.*list:1\): no such file"),
        ({"source": '"/nowhere"'}, SourceError, "image list /nowhere: no such file"),
        ({"transform": "crop_size: 9"}, RecordError, "0.png .* is 3 x 6 x 8, smaller than the crop_size of 9"),
    ],
)
def test_what_is_wrong_is_named(folder, fields, error, message):
    with pytest.raises(error, match=message):
        net_of(text(folder, **fields))


def test_more_ranks_than_images_in_a_batch_are_refused(folder):
    with pytest.raises(SplitError, match="layer 'd': 6 ranks for a batch of 5"):
        net_of(text(folder), rank=0, size=6)


def test_an_image_that_is_damaged_is_named_where_the_batch_is_awaited(folder, tmp_path):
    for number in range(5):
        (tmp_path / f"{number}.png").write_bytes((folder / f"{number}.png").read_bytes()[: 30 if number == 3 else None])
    net = net_of(text(folder, root_folder=f'"{tmp_path}"'))
    with pytest.raises(RecordError, match=r"image .*/3.png \(.*list:4\): can't be decoded"):
        net.forward()
    net.close()
