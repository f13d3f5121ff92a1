"""Concat, Slice, Split and ReLU by kernels give the numbers of the reference forms, whatever the number of parts."""

import numpy as np
import pytest
from google.protobuf import text_format
from strict_arrays import a_gpu

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.proto import NetParameter

INPUT = 'layer {{ name: "x{0}" type: "Input" top: "x{0}" input_param {{ shape {{ {1} }} }} }}\n'
EACH = 'layer {{ name: "y{0}" type: "Power" bottom: "s{0}" top: "y{0}" power_param {{ scale: {1} }} }}\n'


def numbers(text, shapes, gpu):
    """Return what a net over those inputs computes forward, and backward from its outputs, by name."""
    inputs = (INPUT.format(i, " ".join(f"dim: {n}" for n in shape)) for i, shape in enumerate(shapes))
    param = text_format.Parse("force_backward: true\n" + "".join(inputs) + text, NetParameter())
    net = scaffe.Net(param, scaffe.TRAIN, engine=engines.create(Compute("auto" if gpu else "reference"), gpu))
    rng = np.random.default_rng(0)
    found = {}
    for _ in range(2):
        values = {f"x{i}": rng.standard_normal(shape).round(1) for i, shape in enumerate(shapes)}
        found |= {name: array.copy() for name, array in net.forward(**values).items()}
        tops = {name: rng.standard_normal(net.blobs[name].shape) for name in net.outputs}
        found |= {f"{name} diff": array.copy() for name, array in net.backward(**tops).items()}
    return found


def assert_alike(text, *shapes):
    found, expected = (numbers(text, shapes, gpu) for gpu in (a_gpu(), None))
    assert found.keys() == expected.keys() and len(found) > len(shapes)
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values, err_msg=name)


@pytest.mark.parametrize("count", [1, 2, 3, 8, 9, 17])
@pytest.mark.parametrize("axis", [0, 1, -1])
def test_parts_join_as_in_the_reference(count, axis):
    shapes = [[2, 3, 4] for _ in range(count)]
    for i, shape in enumerate(shapes):
        shape[axis] = 1 + i % 5
    bottoms = " ".join(f'bottom: "x{i}"' for i in range(count))
    assert_alike(f'layer {{ name: "y" type: "Concat" {bottoms} top: "y" concat_param {{ axis: {axis} }} }}', *shapes)


@pytest.mark.parametrize("points", [[], [1], [2, 3, 9], [*range(1, 11)]])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_a_whole_is_cut_as_in_the_reference(points, axis):
    shape = [3, 2, 2]
    shape[axis] = 12
    tops = " ".join(f'top: "y{i}"' for i in range(len(points) + 1 if points else 4))
    at = " ".join(f"slice_point: {point}" for point in points)
    assert_alike(f'layer {{ name: "y" type: "Slice" bottom: "x0" {tops} slice_param {{ axis: {axis} {at} }} }}', shape)


@pytest.mark.parametrize("users", [2, 8, 9, 16])
def test_gradients_of_all_users_are_added_in_the_references_order(users):
    tops = " ".join(f'top: "s{i}"' for i in range(users))
    each = "".join(EACH.format(i, 0.1 + i) for i in range(users))
    assert_alike(f'layer {{ name: "s" type: "Split" bottom: "x0" {tops} }}\n{each}', [3, 5])


@pytest.mark.parametrize("slope", [0, 0.25, -0.5])
@pytest.mark.parametrize("top", ["x0", "y"])
def test_units_are_rectified_as_in_the_reference(slope, top):
    relu = f'layer {{ name: "r" type: "ReLU" bottom: "p" top: "{top.replace("x0", "p")}" '
    power = 'layer { name: "p" type: "Power" bottom: "x0" top: "p" power_param { scale: 2 } }\n'
    assert_alike(power + relu + f"relu_param {{ negative_slope: {slope} }} }}", [2, 300])
