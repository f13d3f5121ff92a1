"""The engine's products of matrices: every layout, added or not, rounded as asked; cuBLAS is a stand-in."""

import fake_cublas
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strict_arrays import Array, StrictGpu

from scaffe.engines.cuda.products import KINDS, Products

SIDES = st.integers(1, 5)


def laid_out(rng, shape, turned):
    """Return a matrix, or several, of that shape, in memory as it is or transposed."""
    if not turned:
        return rng.standard_normal(shape).astype(np.float32)
    return np.swapaxes(rng.standard_normal((*shape[:-2], shape[-1], shape[-2])).astype(np.float32), -1, -2)


@given(st.integers(0, 3), SIDES, SIDES, SIDES, *[st.booleans()] * 4)
def test_products_of_all_layouts_are_numpys(count, m, n, k, turned_a, turned_b, turned_out, add):
    rng = np.random.default_rng(0)
    front = (count,) if count else ()
    a, b = laid_out(rng, (*front, m, k), turned_a), laid_out(rng, (*front, k, n), turned_b)
    out = laid_out(rng, (*front, m, n), turned_out)
    expected = np.matmul(a.astype(np.float64), b) + (out if add else 0)
    Products(StrictGpu().xp, "float32")(Array(a), Array(b), Array(out), add=add)
    np.testing.assert_allclose(out, expected, atol=1e-5)


def test_a_part_of_a_matrix_is_written_and_nothing_beside_it():
    rng = np.random.default_rng(1)
    whole = np.zeros((5, 7), np.float32)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 9), (9, 4)))
    Products(StrictGpu().xp, "float32")(Array(a[:, :6]), Array(b[:6]), Array(whole[1:4, 2:6]))
    expected = np.zeros_like(whole)
    expected[1:4, 2:6] = a[:, :6] @ b[:6]
    np.testing.assert_allclose(whole, expected, atol=1e-5)


def test_a_matrix_with_gaps_in_its_rows_is_refused():
    a = Array(np.zeros((4, 4), np.float32))
    with pytest.raises(ValueError, match="cuBLAS needs a stride of 1"):
        Products(StrictGpu().xp, "float32")(a[:, ::2], a[:2], a[:, :4])


@pytest.mark.parametrize(("compute", "bits"), [("tf32", 10), ("bf16", 7)])
def test_numbers_are_rounded_as_asked_and_sums_are_float32(compute, bits):
    kept, lost = np.float32(1 + 2.0**-bits), np.float32(1 + 2.0 ** -(bits + 1))  # halves go to even, which is one
    a = np.array([[kept, lost]], np.float32)
    for kind, expected in ((compute, kept**2 + 1), ("float32", kept**2 + lost**2)):
        out = np.zeros((1, 1), np.float32)
        Products(StrictGpu().xp, kind)(Array(a), Array(a.T), Array(out))
        assert out[0, 0] == expected


def test_every_kind_of_number_is_one_that_the_library_knows():
    assert all(hasattr(fake_cublas.cublas, name) for name in KINDS.values())
