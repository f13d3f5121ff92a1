"""Products of float32 matrices: their arguments are made anew for other arrays, and for these alone."""

import numpy as np
import pytest
from both_engines import needs_onednn

from scaffe.engines.onednn.primitives import Onednn
from scaffe.engines.onednn.sgemm import MadeFor, Sgemm
from scaffe.errors import OnednnError

pytestmark = needs_onednn


def matrices(seed):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in ((4, 5), (5, 6), (4, 6))]


@pytest.mark.parametrize("add", [False, True])
def test_a_product_is_that_of_what_its_arrays_hold_in_each_run(add):
    a, b, out = matrices(1)
    product = Sgemm(Onednn(1), a, b, out)
    for factor in (1, 3):
        a *= factor
        expected = a @ b + (out if add else 0)
        product.run(add)
        np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("apart", "turned"), [(0, False), (0, True), (1, False), (1, True), (2, False)])
def test_rows_of_a_matrix_may_lie_apart(apart, turned):
    arrays = matrices(1)
    wide = np.full([2 * size + 1 for size in arrays[apart].shape], 7, np.float32)
    view = (wide.T if turned else wide)[: arrays[apart].shape[0], : arrays[apart].shape[1]]
    view[...] = arrays[apart]
    arrays[apart] = view
    a, b, out = arrays
    expected = a @ b
    Sgemm(Onednn(1), a, b, out).run()
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)
    view[...] = 7
    assert (wide == 7).all(), "it writes the rows alone"


def test_a_product_is_made_anew_for_other_arrays_alone():
    engine = Onednn(1)
    made_for = MadeFor(lambda *arrays: Sgemm(engine, *arrays))
    first, others = matrices(1), matrices(2)
    product = made_for(*first)
    assert made_for(*first) is product
    for k in range(3):
        mixed = [*others[: k + 1], *first[k + 1 :]]
        made_for(*mixed).run()
        np.testing.assert_allclose(mixed[2], mixed[0] @ mixed[1], rtol=1e-5, atol=1e-5)


def test_arrays_that_are_no_matrices_of_float32_are_refused():
    a, b, out = matrices(1)
    with pytest.raises(OnednnError, match="float64"):
        Sgemm(Onednn(1), a.astype(np.float64), b, out)
    with pytest.raises(OnednnError, match="expected C or Fortran order"):
        Sgemm(Onednn(1), np.repeat(a, 2, axis=1)[:, ::2], b, out)
    with pytest.raises(OnednnError, match="written in C order"):
        Sgemm(Onednn(1), a, b, np.zeros((6, 4), np.float32).T)
