"""Our wire format of blobs against the protobuf library's own."""

import numpy as np
import pytest

from scaffe.proto import BlobProto, NetParameter, blobs


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3,), (2, 3, 5, 7), (40, 50)])
def test_protobuf_reads_what_encode_writes(shape):
    rng = np.random.default_rng(0)
    array, diff = (rng.standard_normal(shape).astype(np.float32) for _ in range(2))
    blob = BlobProto.FromString(blobs.encode(array, diff))
    assert tuple(blob.shape.dim) == shape
    assert np.array_equal(np.array(blob.data, np.float32), array.reshape(-1))
    assert np.array_equal(np.array(blob.diff, np.float32), diff.reshape(-1))


@pytest.mark.parametrize(
    "blob",
    [
        BlobProto(),
        BlobProto(data=[1.5, -2, float("inf")]),
        BlobProto(num=300, channels=-1, height=2, width=1, data=[0.25] * 600, diff=[1.0] * 600),
        BlobProto(double_data=[1.5, 1e300], double_diff=[2.5, 3.5]),
    ],
)
def test_values_are_what_protobuf_holds(blob):
    with np.errstate(over="ignore"):
        expected = np.array(blob.double_data or blob.data, np.float32)
        assert np.array_equal(blobs.values(blob), expected)


def test_a_net_in_parts_is_the_net():
    whole = NetParameter(name="n")
    whole.layer.add(name="a").blobs.add(data=[1, 2])
    blob = whole.layer[0].blobs[0].SerializeToString()
    layer = b"\x0a\x01a" + blobs.field(7, blob)
    parts = NetParameter(name="n").SerializeToString() + blobs.field(NetParameter.LAYER_FIELD_NUMBER, layer)
    assert NetParameter.FromString(parts) == whole
