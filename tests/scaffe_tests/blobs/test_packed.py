"""PackedParameters: where parameters and statistics stand."""

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st

from scaffe.blob import Blob
from scaffe.blobs.packed import ALIGNMENT, PackedParameters, ParameterBlob, aligned_zeros
from scaffe.context import TRAIN, Context
from scaffe.net.net import Net
from scaffe.proto import NetParameter

KINDS = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=6)


@given(KINDS)
def test_what_learns_stands_in_order_before_what_is_measured(kinds):
    parameters = []
    for i, (count, statistic) in enumerate(kinds):
        blob = Blob((count,))
        blob.data[...] = i + 1
        parameters.append(ParameterBlob("it", i, blob, statistic=statistic))
    packed = PackedParameters(parameters)
    starts = [packed.slices[i].start for i, (_, statistic) in enumerate(kinds) if not statistic]
    starts += [packed.slices[i].start for i, (_, statistic) in enumerate(kinds) if statistic]
    assert starts == sorted(set(starts))
    for i, (count, statistic) in enumerate(kinds):
        part, room = packed.slices[i], packed.statistics if statistic else packed.learned
        assert room.start <= part.start and part.stop <= room.stop
        assert packed.data[part].ctypes.data % ALIGNMENT == 0
        np.testing.assert_array_equal(packed.view(packed.data, i), [i + 1] * count)
        parameters[i].blob.diff[...] = 7
    assert packed.diff[packed.learned].sum() == 7 * sum(count for count, statistic in kinds if not statistic)
    assert (packed.learned.start, packed.statistics.start, packed.statistics.stop) == (
        0, packed.learned.stop, len(packed.data),
    )  # fmt: skip


def packed_blobs(*shapes):
    parameters = [ParameterBlob("it", i, Blob(shape)) for i, shape in enumerate(shapes)]
    packed = PackedParameters(parameters)
    for parameter in parameters:
        parameter.blob.diff[...] = 7
    return packed, [parameter.blob for parameter in parameters]


def test_cleared_gradients_are_zeros_wherever_one_looks():
    for look in (lambda packed, blob: packed.diff[packed.slices[0]], lambda packed, blob: blob.diff,
                 lambda packed, blob: packed.settle(0) or blob.diff_values.array):  # fmt: skip
        packed, blobs = packed_blobs((3, 5), (4,))
        packed.clear_diffs()
        assert not look(packed, blobs[0]).any()


def test_what_is_written_after_clearing_stays():
    packed, (blob, _) = packed_blobs((3, 5), (4,))
    packed.clear_diffs()
    array, zeros = blob.diff_values.to_add(blob.shape, np)
    array[...] = 2
    assert zeros and not blob.diff_values.to_add(blob.shape, np)[1]
    assert packed.diff.sum() == 2 * 15
    packed.clear_diffs()
    packed.diff[packed.slices[1]] = 3
    packed.settle(1)
    assert packed.diff.sum() == 3 * 4


HANDED = """
layer { name: "in" type: "Input" top: "in" input_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip1" type: "InnerProduct" bottom: "in" top: "ip1"
  inner_product_param { num_output: 4 weight_filler { type: "xavier" } } }
layer { name: "ip2" type: "InnerProduct" bottom: "ip1" top: "ip2"
  inner_product_param { num_output: 5 weight_filler { type: "gaussian" } } }
"""


@pytest.mark.parametrize("handed", [(), ("ip1",), ("ip1", "ip2")])
def test_parameters_that_get_their_values_later_run_no_filler_and_shift_no_others(handed) -> None:
    param = text_format.Parse(HANDED, NetParameter())
    filled, net = Net(param, phase=TRAIN), Net(param, context=Context(TRAIN, handed=handed))
    for name, blobs in filled.params.items():
        assert name not in handed or not net.params[name][0].array.any()
        assert name in handed or (net.params[name][0].array == blobs[0].array).all()
    net.move_parameters(aligned_zeros)
    net.packed.set_data(np.arange(net.packed.flat.size, dtype=np.float32))
    net.packed.diff[...] = 7
    net.move_parameters(aligned_zeros)
    assert net.packed.flat.tolist() == [*range(net.packed.flat.size)] and (net.packed.diff == 7).all()
    net.move_parameters(aligned_zeros, gradients=False)
    assert net.packed.flat.tolist() == [*range(net.packed.flat.size)] and not net.packed.diff.any()


def test_parameters_that_were_filled_keep_their_values_when_others_get_theirs_later() -> None:
    net = Net(text_format.Parse(HANDED, NetParameter()), context=Context(TRAIN, handed=["ip1"]))
    before = net.params["ip2"][0].array.copy()
    net.move_parameters(aligned_zeros)
    assert before.any() and (net.params["ip2"][0].array == before).all()
