"""MemoryData: the rows of the caller's arrays in turn, each rank its own."""

from __future__ import annotations

import numpy as np
import pytest
from over_ranks import assert_same, net_of, run, together

from scaffe.errors import NetError, ShapeError

NET = """
layer { name: "d" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 4 channels: 3 height: 2 width: 5 } }
"""
DATA = np.random.RandomState(0).rand(12, 3, 2, 5).astype(np.float32)
LABELS = np.arange(12, dtype=np.float32)


def given(net, data=DATA, labels=LABELS):
    net.set_input_arrays(data, labels)
    return net


def test_batches_are_the_rows_in_turn_over_and_over():
    for t, blobs in enumerate(run(given(net_of(NET)), 5)):
        rows = np.arange(4 * t, 4 * t + 4) % 12
        np.testing.assert_array_equal(blobs["data"], DATA[rows])
        np.testing.assert_array_equal(blobs["label"], LABELS[rows])


def test_labels_may_have_four_axes_and_numbers_be_of_any_kind():
    labels = np.arange(4)[:, None, None, None]
    [blobs] = run(given(net_of(NET), DATA[:4].astype(np.float64), labels), 1)
    np.testing.assert_array_equal(blobs["data"], DATA[:4])
    np.testing.assert_array_equal(blobs["label"], [0, 1, 2, 3])


def test_new_arrays_begin_at_their_first_row():
    net = given(net_of(NET))
    run(net, 2)
    np.testing.assert_array_equal(run(given(net, DATA[4:], LABELS[4:]), 1)[0]["label"], LABELS[4:8])


def test_the_callers_arrays_are_read_when_their_batch_comes_and_never_written():
    net = net_of(NET + 'layer { name: "p" type: "Power" bottom: "data" top: "data" power_param { shift: 1 } }')
    data = DATA.copy()
    given(net, data)
    data[0] = 7
    [blobs] = run(net, 1)
    np.testing.assert_array_equal(blobs["data"], data[:4] + 1)
    assert (data[0] == 7).all() and np.array_equal(data[1:], DATA[1:])


@pytest.mark.parametrize("size", [2, 3, 4])
def test_ranks_together_have_the_batches_of_one(size):
    assert_same(together(NET, size, 4, given), run(given(net_of(NET)), 4))
    weak = together(NET, size, 4, given, scaling="weak")
    rows = [np.arange(4 * size * t, 4 * size * (t + 1)) % 12 for t in range(4)]
    assert_same(weak, [{"data": DATA[row], "label": LABELS[row]} for row in rows])


@pytest.mark.parametrize("arrays_first", [True, False])
def test_a_layer_goes_on_where_another_stood(arrays_first):
    straight = given(net_of(NET))
    run(straight, 2)
    position = straight.layers[0].position

    def restore(net):
        steps = [lambda: given(net), lambda: net.layers[0].seek(position)]
        for step in steps if arrays_first else reversed(steps):
            step()

    assert position == 8
    assert_same(together(NET, 2, 3, restore), run(straight, 3))


@pytest.mark.parametrize(
    ("data", "labels", "message"),
    [
        (DATA[:, :2], LABELS, r"layer 'd' \(MemoryData\): expected data of shape \(N, 3, 2, 5\), got \(12, 2, 2, 5\)"),
        (DATA[:10], LABELS[:10], "expected a multiple of batch_size 4 rows, got 10"),
        (DATA[:0], LABELS[:0], "expected a multiple of batch_size 4 rows, got 0"),
        (DATA, LABELS[:11], r"expected 12 labels, one for each row, got shape \(11,\)"),
        (DATA, np.zeros((12, 2)), r"expected 12 labels, one for each row, got shape \(12, 2\)"),
    ],
)
def test_arrays_that_do_not_fit_are_refused(data, labels, message):
    with pytest.raises(ShapeError, match=message):
        given(net_of(NET), data, labels)


def test_a_net_without_its_arrays_or_its_layer_says_so():
    with pytest.raises(NetError, match=r"layer 'd' .*has no data yet; call net.set_input_arrays"):
        net_of(NET).forward()
    with pytest.raises(NetError, match="needs a batch_size, channels, height and width of 1 or more"):
        net_of(NET.replace("width: 5", ""))
    net = net_of('layer { name: "i" type: "Input" top: "x" input_param { shape { dim: 2 } } }')
    with pytest.raises(NetError, match=r"layer 'i' \(Input\): the first layer must be a MemoryData layer"):
        given(net)
