"""WindowData: Caffe's fields, the same windows on any number of ranks and after any stop."""

from __future__ import annotations

import numpy as np
import pytest
from over_ranks import assert_same, net_of, run, together
from PIL import Image

from readers import ReaderError, read_mean, write_mean
from scaffe.errors import NetError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Five images of noise with six windows each, and a mean image."""
    folder = tmp_path_factory.mktemp("windows")
    rng = np.random.RandomState(0)
    lines = []
    for number in range(5):
        Image.fromarray(rng.randint(0, 256, (20, 30, 3), np.uint8)).save(folder / f"{number}.png")
        lines += [f"# {number}", f"{number}.png", "3 20 30", "6"]
        for window in range(6):
            x, y = rng.randint(0, 15), rng.randint(0, 10)
            lines.append(f"{window + 1} {window % 2} {x} {y} {x + 3 + window} {y + 9}")
    (folder / "windows").write_text("\n".join(lines))
    write_mean(folder / "mean", rng.rand(3, 10, 10).astype(np.float32))
    return folder


def text(folder, batch=8, transform="crop_size: 8 mirror: true", more=""):
    return f"""layer {{ name: "d" type: "WindowData" top: "data" top: "label" transform_param {{ {transform} }}
        window_data_param {{ source: "{folder}/windows" root_folder: "{folder}/" batch_size: {batch} {more} }} }}"""


VARIANTS = {
    "warp": {},
    "context": {"more": "context_pad: 2 cache_images: true"},
    "square": {"more": 'crop_mode: "square" fg_fraction: 0.5'},
}


@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("size", [2, 3])
def test_ranks_together_have_the_batches_of_one(folder, size, variant):
    net = text(folder, **VARIANTS[variant])
    whole = run(net_of(net, seed=3), 4)
    assert_same(together(net, size, 4, seed=3), whole)
    foreground = 4 if variant == "square" else 2
    for blobs in whole:
        assert (blobs["data"].shape, blobs["label"].shape) == ((8, 3, 8, 8), (8,))
        assert np.count_nonzero(blobs["label"]) == np.count_nonzero(blobs["label"][-foreground:]) == foreground


def test_a_layer_goes_on_where_another_stood(folder):
    straight = net_of(text(folder), seed=3)
    run(straight, 3)
    position = straight.layers[0].position
    resumed = together(text(folder), 2, 3, lambda net: net.layers[0].seek(position), seed=3)
    assert_same(resumed, run(straight, 3))


def test_weak_scaling_has_the_batches_of_one_with_all_rows(folder):
    assert_same(together(text(folder, 4), 2, 3, scaling="weak", seed=3), run(net_of(text(folder, 8), seed=3), 3))


@pytest.mark.parametrize("where", ["transform", "more"])
def test_mean_and_scale_are_applied(folder, where):
    [plain] = run(net_of(text(folder, transform="crop_size: 8"), seed=3), 1)
    fields = {"transform": f'crop_size: 8 mean_file: "{folder}/mean"', "more": ""}
    fields[where] += " scale: 0.25"
    [scaled] = run(net_of(text(folder, **fields), seed=3), 1)
    centre = read_mean(folder / "mean")[:, 1:9, 1:9]
    np.testing.assert_allclose(scaled["data"], (plain["data"] - centre) / 4, rtol=1e-6)


def test_what_is_wrong_is_named(folder):
    with pytest.raises(ReaderError, match="windows need a crop_size of 1 or more in transform_param, got 0"):
        net_of(text(folder, transform=""))
    with pytest.raises(ReaderError, match="unknown crop_mode 'wrap'"):
        net_of(text(folder, more='crop_mode: "wrap"'))
    with pytest.raises(ReaderError, match="expected a fg_fraction of 0 to 1, got 1.5"):
        net_of(text(folder, more="fg_fraction: 1.5"))
    with pytest.raises(NetError, match="batch_size must be 1 or more, got 0"):
        net_of(text(folder, batch=0))
