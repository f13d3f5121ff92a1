"""DummyData: Caffe's fields, what is refilled, and that ranks have what one rank would."""

import numpy as np
import pytest
from google.protobuf import text_format
from gradient_check import OneLayer, contexts, rows

from scaffe.context import Context
from scaffe.errors import NetError, ShapeError
from scaffe.net.net import Net
from scaffe.proto import NetParameter

RANDOM = """type: "DummyData" dummy_data_param {
  shape { dim: 7 dim: 3 } shape { dim: 7 } data_filler { type: "gaussian" } data_filler { type: "uniform" max: 9 }
}"""
CONSTANT = 'type: "DummyData" dummy_data_param { shape { dim: 2 dim: 3 } data_filler { value: 4 } }'


def tops(text, context=None, count=2):
    return OneLayer(text, tops=count, context=context or Context()).forward()


def test_caffes_old_fields_give_what_caffe_gives(cases):
    folder = cases / "parity" / "data_dummy_legacy"
    net = Net(text_format.Parse((folder / "net.prototxt").read_text(), NetParameter()), phase=1)
    net.forward()
    with np.load(folder / "arrays.npz") as arrays:
        for name, blob in net.blobs.items():
            expected = [arrays[key] for key in arrays.files if name in key]
            assert expected
            for values in expected:
                np.testing.assert_array_equal(blob.data, values.reshape(blob.shape))


def test_old_fields_give_the_shapes():
    text = 'type: "DummyData" dummy_data_param { num: 2 channels: 3 height: 4 width: 5 }'
    assert [top.shape for top in tops(text)] == [(2, 3, 4, 5)] * 2


def test_without_a_filler_the_tops_are_zero():
    (values,) = tops('type: "DummyData" dummy_data_param { shape { dim: 3 } }', count=1)
    assert (values == 0).all()


def test_constants_are_filled_once():
    it = OneLayer(CONSTANT)
    assert (it.forward()[0] == 4).all()
    it.top[0].array[...] = 5
    assert (it.forward()[0] == 5).all()


def test_random_values_are_drawn_anew_for_each_batch_and_depend_on_its_number_alone():
    first, second = tops(RANDOM), tops(RANDOM, Context(batch_number=1))
    again = tops(RANDOM)
    for a, b, c in zip(first, second, again, strict=True):
        assert (a != b).any()
        np.testing.assert_array_equal(a, c)


@pytest.mark.parametrize("ranks", [1, 2, 3, 7])
def test_ranks_together_have_the_values_of_one(ranks):
    parts = [tops(RANDOM, context) for context in contexts(7, ranks, seed=3)]
    for i, whole in enumerate(tops(RANDOM, Context(seed=3))):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), whole)


def test_ranks_with_whole_batches_each_have_values_of_their_own():
    parts = [tops(RANDOM, context) for context in contexts(7, 2, seed=3, scaling="weak")]
    assert [part[0].shape for part in parts] == [(7, 3)] * 2
    twice = RANDOM.replace("dim: 7", "dim: 14")
    for i, whole in enumerate(tops(twice, Context(seed=3))):
        np.testing.assert_array_equal(np.concatenate([part[i] for part in parts]), whole)


def test_rows_are_those_of_the_rank():
    context = contexts(7, 3, seed=3)[1]
    np.testing.assert_array_equal(tops(RANDOM, context)[0], tops(RANDOM, Context(seed=3))[0][rows(context)])


@pytest.mark.parametrize(
    ("fields", "error"),
    [
        ("num: 2 channels: 3 height: 4", NetError),
        ("shape { dim: 2 } shape { dim: 2 } shape { dim: 2 }", NetError),
        ("shape { dim: 2 } data_filler {} data_filler {} data_filler {}", NetError),
        ("shape { dim: 2 dim: 0 }", ShapeError),
        ('shape { dim: 2 } data_filler { type: "nonsense" }', NetError),
    ],
)
def test_fields_that_mean_nothing_are_refused(fields, error):
    with pytest.raises(error, match="layer 'it'"):
        tops(f'type: "DummyData" dummy_data_param {{ {fields} }}')
