"""Blobs whose values are an array that a reader lends for a pass: users read and write arrays of their own."""

import numpy as np
import pytest
from strict_arrays import xp

from scaffe.blob import Blob
from scaffe.errors import CallError, ScaffeError

ONE, TWO = np.arange(6, dtype=np.float32).reshape(2, 3), np.full((2, 3), 7, np.float32)


@pytest.fixture
def blob():
    return Blob((2, 3))


def test_a_borrowed_array_is_not_copied(blob):
    lent = ONE.copy()
    blob.borrow(lent)
    assert blob.array is lent


def test_the_blob_takes_the_borrowed_arrays_shape(blob):
    blob.borrow(np.zeros((5, 1), np.float32))
    assert blob.shape == blob.data.shape == (5, 1)


def test_a_users_array_shows_what_is_borrowed_and_is_not_lent(blob):
    kept, lent = blob.data, ONE.copy()
    blob.borrow(lent)
    np.testing.assert_array_equal(kept, ONE)
    lent[...] = TWO  # the reader's next batch
    np.testing.assert_array_equal(kept, ONE)
    np.testing.assert_array_equal(blob.array, ONE)


def test_what_a_user_asks_for_afterwards_is_a_copy(blob):
    lent = ONE.copy()
    blob.borrow(lent)
    kept = blob.data
    kept[...] = TWO
    np.testing.assert_array_equal(blob.array, TWO)
    np.testing.assert_array_equal(lent, ONE)


def test_a_users_array_is_the_same_from_pass_to_pass(blob):
    blob.borrow(ONE.copy())
    kept = blob.data
    blob.borrow(TWO.copy())
    assert blob.data is kept
    np.testing.assert_array_equal(kept, TWO)


@pytest.mark.parametrize("shape", [(2, 3), (6,)])
def test_a_view_of_borrowed_values_is_borrowed_too(blob, shape):
    lent, view = ONE.copy(), Blob(shape)
    blob.borrow(lent)
    view.view(blob)
    assert np.shares_memory(view.array, lent)
    view.data[...] = 7
    np.testing.assert_array_equal(lent, ONE)


def test_another_shape_of_borrowed_values_is_borrowed_too(blob):
    lent = ONE.copy()
    blob.borrow(lent)
    blob.reshape(6)
    blob.data[...] = 7
    np.testing.assert_array_equal(lent, ONE)


def test_borrowing_writes_nothing_into_an_array_that_was_lent_before(blob):
    lent, view = ONE.copy(), Blob((2, 3))
    kept = view.data
    blob.borrow(lent)
    view.view(blob)
    view.borrow(TWO.copy())
    np.testing.assert_array_equal(lent, ONE)
    assert kept is not None


def test_values_of_the_blobs_own_are_shown_without_a_copy(blob):
    for part, array in (("data", "array"), ("diff", "diff_array")):
        own = getattr(blob, array)
        getattr(blob, part)[...] = TWO
        np.testing.assert_array_equal(own, TWO)
        assert np.shares_memory(own, getattr(blob, array))


def test_a_gradient_is_never_a_copy_though_the_values_are_borrowed(blob):
    blob.borrow(ONE.copy())
    assert np.shares_memory(blob.diff, blob.diff_array)


def test_lengths_may_be_numpys_and_become_pythons(blob):
    blob.reshape(*np.array([3, 2]))
    assert blob.shape == (3, 2) and all(type(length) is int for length in blob.shape)
    with pytest.raises(CallError, match=r"a blob's shape takes whole numbers, one for each axis, got \(2.5, 1\)"):
        blob.reshape(2.5, 1)
    assert blob.shape == (3, 2)


@pytest.mark.parametrize("write", ["plain", "take"])
def test_a_gradient_that_was_released_can_be_read_once_it_is_written_again(blob, write):
    blob.diff_values.defer(lambda array: array.fill(1))
    blob.diff_array[...] = 1
    blob.diff_values.defer(lambda array: array.fill(2))
    blob.release_diff()
    with pytest.raises(ScaffeError, match="this blob's gradient was released after use"):
        blob.diff  # noqa: B018
    if write == "plain":
        blob.diff_array[...] = TWO
    else:
        blob.diff_array = TWO
    np.testing.assert_array_equal(blob.diff, TWO)


def test_what_a_user_wrote_into_a_host_copy_is_where_the_device_computes_once_it_is_settled():
    blob = Blob((2, 3), xp)
    blob.diff[...] = TWO
    blob.diff_values.settle()
    np.testing.assert_array_equal(blob.diff_values.array.get(), TWO)


def test_the_axes_have_caffes_names_and_missing_ones_count_1():
    blob = Blob((5, 4, 3))
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (5, 4, 3, 1, 60)
    assert Blob().num == Blob().count == 1
