"""coord_map: maps of coordinates, against the footprints of layers that run and the published offsets of FCNs."""

import numpy as np
import pytest

import scaffe
from scaffe import layers as L
from scaffe.spec import coord_map as maps
from scaffe.spec import params as P

SIZE = 40
ONES = dict(type="constant", value=1)


def images(channels=1):
    return L.Input(shape=dict(dim=[1, channels, SIZE, SIZE]))


def centre(values):
    """Return the centre of mass of an array (1 x 1 x H x W)."""
    places = np.argwhere(values[0, 0])
    return np.average(places, axis=0, weights=values[0, 0][tuple(places.T)])


def seen_from(top, place):
    """Return the coordinates in `data` that the top's value at `place` is computed from: the middle of them."""
    net = scaffe.Net(named(top), scaffe.TRAIN)
    net.forward()
    net.blobs["top"].diff[...] = 0
    net.blobs["top"].diff[(0, 0, *place)] = 1
    net.backward()
    return centre(net.blobs["data"].diff)


def named(top):
    n = scaffe.NetSpec()
    n.data, n.top = top.fn.inputs[0], top
    proto = n.to_proto()
    proto.force_backward = True
    return proto


def applied(mapping, place):
    _, scale, shift = mapping
    return np.array(place) * scale + shift


@pytest.mark.parametrize(
    "fields",
    [
        dict(kernel_size=3),
        dict(kernel_size=4, stride=3, pad=2),
        dict(kernel_size=[3, 4], stride=[2, 1], pad=[0, 3]),
        dict(kernel_size=3, dilation=[2, 3], pad=1),
        dict(kernel_h=3, kernel_w=2, stride_h=2, stride_w=3, pad_h=1, pad_w=0),
    ],
)
def test_a_convolution_computes_a_value_from_a_window_around_its_coordinate(fields):
    x = images()
    top = L.Convolution(x, num_output=1, weight_filler=ONES, **fields)
    for place in ((4, 5), (8, 3)):
        mapped = applied(maps.coord_map_from_to(top, x), place)
        np.testing.assert_allclose(mapped, seen_from(top, place))


@pytest.mark.parametrize("fields", [dict(kernel_size=2, stride=2), dict(kernel_h=3, kernel_w=5, stride=2, pad=1)])
def test_pooling_computes_a_value_from_a_window_around_its_coordinate(fields):
    x = images()
    top = L.Pooling(x, pool=P.Pooling.AVE, **fields)
    mapped = applied(maps.coord_map_from_to(top, x), (4, 5))
    np.testing.assert_allclose(mapped, seen_from(top, (4, 5)))


@pytest.mark.parametrize("fields", [dict(kernel_size=4, stride=2, pad=1), dict(kernel_size=[3, 5], stride=[1, 3])])
def test_a_deconvolution_spreads_a_value_around_its_coordinate(fields):
    x = images()
    top = L.Deconvolution(x, convolution_param=dict(num_output=1, weight_filler=ONES, **fields))
    net = scaffe.Net(named(top), scaffe.TEST)
    net.blobs["data"].data[...] = 0
    net.blobs["data"].data[0, 0, 7, 9] = 1
    net.forward()
    np.testing.assert_allclose(applied(maps.coord_map_from_to(x, top), (7, 9)), centre(net.blobs["top"].data))


def test_what_lies_between_is_composed_and_crops_shift():
    x, other = images(), images()
    pooled = L.Pooling(L.ReLU(x), kernel_size=3, stride=2)
    top = L.Crop(L.Deconvolution(pooled, num_output=1, kernel_size=4, stride=2), other, axis=2, offset=[1, 4])
    axis, scale, shift = maps.coord_map_from_to(top, x)
    # crop: y = x + (1, 4); upsampled: y = 2 x + 1.5, backwards; pooled: 2 x + 1
    assert (axis, scale.tolist()) == (1, [1])
    np.testing.assert_allclose(shift, np.array([1, 4]) - 1.5 + 1)
    back = maps.inverse((axis, scale, shift))
    np.testing.assert_allclose(maps.coord_map_from_to(x, top)[2], back[2])


def vgg(n, pad):
    """Add VGG-16's layers that have a place, up to its last, with the padding of a fully convolutional net."""
    top = n.data
    for stage, count in enumerate((2, 2, 3, 3, 3)):
        for _ in range(count):
            top = L.ReLU(L.Convolution(top, num_output=1, kernel_size=3, pad=pad), in_place=True)
            pad = 1
        top = n[f"pool{stage + 1}"] = L.Pooling(top, pool=P.Pooling.MAX, kernel_size=2, stride=2)
    return L.Convolution(L.Convolution(top, num_output=1, kernel_size=7), num_output=1, kernel_size=1)


def offset(top):
    return list(top.fn.layer_parameter().crop_param.offset)


def upscore(top, factor):
    return L.Deconvolution(top, convolution_param=dict(num_output=1, kernel_size=2 * factor, stride=factor))


def test_crops_of_fully_convolutional_nets_have_the_published_offsets():
    n = scaffe.NetSpec()
    n.data = images(3)
    score = vgg(n, 100)
    assert offset(maps.crop(upscore(score, 32), n.data)) == [19]
    upscored = upscore(score, 2)
    pool4 = maps.crop(L.Convolution(n.pool4, num_output=1, kernel_size=1), upscored)
    assert offset(pool4) == [5]
    fused = L.Eltwise(upscored, pool4)
    assert offset(maps.crop(upscore(fused, 16), n.data)) == [27]
    upscored = upscore(fused, 2)
    pool3 = maps.crop(L.Convolution(n.pool3, num_output=1, kernel_size=1), upscored)
    assert offset(pool3) == [9]
    n.score = maps.crop(upscore(L.Eltwise(upscored, pool3), 8), n.data)
    assert offset(n.score) == [31]
    net = scaffe.Net(n.to_proto(), scaffe.TEST)
    assert net.blobs["score"].shape == (1, 1, SIZE, SIZE)


def test_a_crop_of_tops_of_one_place_begins_at_the_first_spatial_axis():
    x = images()
    field = maps.crop(L.ReLU(x), x).fn.layer_parameter().crop_param
    assert (field.axis, list(field.offset)) == (2, [0])


def test_steps_of_a_third_are_whole_again():
    x = images()
    pooled = L.Pooling(x, kernel_size=3, stride=3)
    assert offset(maps.crop(L.Deconvolution(pooled, num_output=1, kernel_size=3, stride=3), x)) == [0]


@pytest.mark.parametrize(
    ("build", "kind", "said"),
    [
        (lambda x: L.InnerProduct(x, num_output=3), RuntimeError, "no map of coordinates from a top of InnerProduct"),
        (lambda x: L.Pooling(x, global_pooling=True), RuntimeError, "from a top of Pooling to one of Input"),
        (lambda x: L.Pooling(x, kernel_size=2, stride=2), AssertionError, r"is \[2.*\] steps in the other; expected 1"),
        (lambda x: L.Convolution(x, num_output=1, kernel_size=3), AssertionError, r"offset \[-1.*whole numbers from 0"),
        (lambda x: L.Convolution(x, num_output=1, kernel_size=4, pad=3), AssertionError, r"offset \[1.5\]: expected"),
    ],
)
def test_tops_that_no_crop_aligns_are_refused(build, kind, said):
    x = images()
    with pytest.raises(kind, match=said) as error:
        maps.crop(build(x), x)
    assert isinstance(error.value, scaffe.ScaffeError)


def test_maps_over_other_axes_and_layers_without_one_are_refused():
    x = images()
    with pytest.raises(maps.AxisMismatchException, match="behind axis 2 is followed by one behind axis 1"):
        maps.compose((1, 2, 0), (2, 2, 0))
    with pytest.raises(maps.UndefinedMapException, match="Flatten has no map"):
        maps.coord_map(L.Flatten(x).fn)
    with pytest.raises(maps.UndefinedMapException, match="Convolution has no kernel_size"):
        maps.coord_map(L.Convolution(x, num_output=1).fn)


def test_the_top_that_a_crop_has_the_size_of_is_no_way_between_coordinates():
    data, other = (L.Input(input_param=dict(shape=dict(dim=[1, 1, 9, 9]))) for _ in range(2))
    cropped = L.Crop(data, other, axis=2, offset=2)
    assert [float(np.ravel(number)[0]) for number in maps.coord_map_from_to(cropped, data)[1:]] == [1, 2]
    with pytest.raises(maps.UnconnectedError, match="no map of coordinates from a top of Crop to one of Input"):
        maps.coord_map_from_to(cropped, other)
