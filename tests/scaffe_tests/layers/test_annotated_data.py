"""AnnotatedData in a net: the tops, SSD's fields, and what is refused."""

import numpy as np
import pytest
from boxed_pictures import SIDE, annotation, data_layer, make
from google.protobuf import text_format

import scaffe
from scaffe.errors import NetError
from scaffe.proto import NetParameter


def net(folder, more="", sampler="", batch=4, phase="TRAIN"):
    text = data_layer(folder / "list.txt", batch, phase, more, sampler)
    return scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN if phase == "TRAIN" else scaffe.TEST)


@pytest.fixture
def folder(tmp_path):
    make(tmp_path, 6)
    return tmp_path


def test_the_tops_are_pictures_and_rows_of_boxes(folder):
    built = net(folder)
    for _ in range(3):
        tops = built.forward()
        assert tops["data"].shape == (4, 3, SIDE, SIDE)
        assert np.abs(tops["data"]).max() <= 1.2
        rows = tops["label"].reshape(-1, 8)
        assert tops["label"].shape == (1, 1, len(rows), 8)
        assert [*np.unique(rows[:, 0])] == [0, 1, 2, 3] and {*rows[:, 1]} <= {1, 2}
        assert (rows[:, 3] < rows[:, 5]).all() and (rows[:, 4] < rows[:, 6]).all() and rows[:, 3:7].max() <= 1
        for image, label, *_, xmin, ymin, xmax, ymax, _ in rows:  # squares are red, bars blue; channels B G R
            y, x = ((np.array([ymin + ymax, xmin + xmax]) / 2) * SIDE).astype(int)
            assert tops["data"][int(image), :, y, x].argmax() == {1: 2, 2: 0}[label]
    built.close()


def test_pictures_without_boxes_give_a_row_of_minus_1(folder):
    for path in folder.glob("*.xml"):
        path.write_text(annotation([]))
    built = net(folder)
    np.testing.assert_array_equal(built.forward()["label"], np.full((1, 1, 1, 8), -1))
    built.close()


def test_published_samplers_are_understood(folder):
    samplers = (
        "batch_sampler { max_sample: 1 max_trials: 1 } "
        "batch_sampler { sampler { min_scale: 0.3 max_scale: 1 min_aspect_ratio: 0.5 max_aspect_ratio: 2 } "
        "sample_constraint { min_jaccard_overlap: 0.5 } max_sample: 1 max_trials: 50 }"
    )
    distort = (
        "distort_param { brightness_prob: 0.5 brightness_delta: 32 contrast_prob: 0.5 contrast_lower: 0.5 "
        "contrast_upper: 1.5 hue_prob: 0.5 hue_delta: 18 saturation_prob: 0.5 saturation_lower: 0.5 "
        "saturation_upper: 1.5 random_order_prob: 0 } "
    )
    more = distort + "mirror: true expand_param { prob: 0.5 max_expand_ratio: 4 } emit_constraint { emit_type: CENTER }"
    built = net(folder, more, samplers)
    for _ in range(4):
        assert built.forward()["data"].shape == (4, 3, SIDE, SIDE)
    built.close()


@pytest.mark.parametrize(
    ("more", "sampler", "said"),
    [
        ("crop_size: 8", "", "has crop_size or mean_file; give batch_sampler"),
        (
            "distort_param { contrast_lower: 1 contrast_upper: 0.5 }",
            "",
            "contrast_lower below 0, or above contrast_upper",
        ),
        ("", "batch_sampler { sampler { min_scale: 2 max_scale: 3 } }", "a scale above 1"),
        ("", "batch_sampler { sampler { min_aspect_ratio: 0 } }", "aspect ratio of 0"),
    ],
)
def test_wrong_fields_are_refused(folder, more, sampler, said):
    with pytest.raises(NetError, match=rf"layer 'data' \(AnnotatedData\).*{said}"):
        net(folder, more, sampler)


def test_a_resize_that_is_not_here_is_refused(folder):
    text = data_layer(folder / "list.txt", 4, "TRAIN").replace("WARP", "FIT_SMALL_SIZE")
    with pytest.raises(NetError, match="layer 'data'.*another resize_mode than WARP"):
        scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN)


def test_fields_of_boxes_are_refused_in_other_data_layers(folder):
    text = 'layer { name: "d" type: "Data" top: "data" data_param { source: "synthetic:8x1x4x4:2:0" batch_size: 2 } '
    text += "transform_param { resize_param { height: 8 width: 8 } } }"
    with pytest.raises(NetError, match=r"layer 'd' \(Data\).*resize_param, which AnnotatedData alone takes"):
        scaffe.Net(text_format.Parse(text, NetParameter()), scaffe.TRAIN)
