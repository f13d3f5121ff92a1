"""Tensors as arrays, and back."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.errors import ArgumentError  # noqa: E402
from collectives.torch import tensors  # noqa: E402


def test_contiguous_tensors_of_the_host_are_taken_as_they_are_and_others_as_copies() -> None:
    plain = torch.arange(6.0).reshape(2, 3)
    assert tensors.on_host(plain).data_ptr() == plain.data_ptr()
    assert tensors.on_host(plain.t()).tolist() == plain.t().tolist()
    assert tensors.on_host(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]
    for wrong, said in ((plain.to_sparse(), "call to_dense"), (plain.to("meta"), "on the device meta")):
        with pytest.raises(ArgumentError, match=said):
            tensors.on_host(wrong)


def test_what_lands_in_a_copy_is_copied_back() -> None:
    whole = torch.zeros(2, 3)
    for tensor in (whole, whole.t()):
        with tensors.landing(tensor) as room:
            assert room.is_contiguous()
            room += 1
    assert whole.tolist() == [[2] * 3] * 2
    with pytest.raises(ArgumentError, match="share memory, as expand"), tensors.landing(torch.ones(1).expand(4)):
        pass
    with tensors.landing(torch.ones(1).expand(1)):
        pass


def test_a_short_tensor_is_the_same_array_each_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "SHORT", {})
    monkeypatch.setattr(tensors, "MOST_SHORT", 2)
    one, long = torch.zeros(2, 2), torch.zeros(1 << 15)
    assert tensors.flat(one) is tensors.flat(one) and tensors.flat(one).shape == (4,)
    assert tensors.flat(one[:1]) is not tensors.flat(one)
    assert tensors.flat(long) is not tensors.flat(long) and len(tensors.SHORT) == 2
    tensors.flat(torch.zeros(3))
    assert len(tensors.SHORT) == 1
    tensors.flat(one)[:] = 5
    assert one.eq(5).all()


def test_elements_and_bytes_are_spread_over_tensors() -> None:
    given = [torch.tensor([1.0, 2.0]), torch.tensor([[3.0], [4.0]])]
    side_by_side = tensors.joined(given)
    assert side_by_side.tolist() == [1, 2, 3, 4]
    for elements in (side_by_side, torch.from_numpy(tensors.as_bytes(side_by_side).copy())):
        found = [torch.zeros(2), torch.zeros(2, 1)]
        tensors.spread(elements, found)
        assert [one.tolist() for one in found] == [[1, 2], [[3], [4]]]
    assert tensors.as_bytes(side_by_side).dtype == np.uint8 and tensors.nbytes(side_by_side) == 16


def test_tensors_of_one_storage_overlap_unless_they_are_empty() -> None:
    whole = torch.zeros(4)
    assert tensors.overlap(whole[:1], whole[3:]) and not tensors.overlap(whole, torch.zeros(4))
    assert not tensors.overlap(whole[:0], whole)


def test_lists_types_and_lengths() -> None:
    one = torch.zeros(2)
    assert tensors.one_of(one) == [one] and tensors.one_of((one,)) == [one]
    tensors.check_same("x", "the input", one, torch.zeros(3), sizes=False)
    with pytest.raises(ArgumentError, match="the input has 2 elements, expected 3"):
        tensors.check_same("x", "the input", one, torch.zeros(3))
    with pytest.raises(ArgumentError, match="the input is of torch.float32, expected torch.int64"):
        tensors.check_same("x", "the input", one, torch.zeros(2, dtype=torch.int64), sizes=False)
    target = torch.zeros(2)
    tensors.copy_back(torch.ones(2), target)
    assert target.tolist() == [1, 1]
