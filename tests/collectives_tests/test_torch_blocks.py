"""Blocks of tensors, in bytes, and what is no block."""

from __future__ import annotations

from collections.abc import Callable

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch: pip install 'scaffe[torch]'")

from collectives.errors import ArgumentError  # noqa: E402
from collectives.torch.blocks import (  # noqa: E402
    MISTAKE,
    blocks,
    check_lengths,
    check_number,
    check_parts,
    placed,
    share_mistake,
    split_blocks,
    uneven,
)

FOUR = torch.zeros(4, 3)  # rows of 12 bytes


def test_blocks_lie_side_by_side() -> None:
    assert placed([2, 0, 3]) == ([2, 0, 3], [0, 2, 2]) and placed([]) == ([], [])
    assert blocks([torch.zeros(2), torch.zeros(3, dtype=torch.int16)]) == ([8, 6], [0, 8])
    assert uneven([2, 2]) is None and uneven([2, 3]) == [2, 3]


def test_splits_are_rows_equal_ones_by_default() -> None:
    assert split_blocks("input", FOUR, [], 2) == ([24, 24], [0, 24])
    assert split_blocks("input", FOUR, [1, 3], 2) == ([12, 36], [0, 12])
    assert split_blocks("input", torch.zeros(0, 3), [0, 0], 2) == ([0, 0], [0, 0])
    assert split_blocks("input", torch.tensor(1.0), [1], 1) == ([4], [0])


@pytest.mark.parametrize(
    ("check", "said"),
    [
        (lambda: split_blocks("input", FOUR, None, 3), "the input has 4 rows, no multiple of 3 ranks"),
        (lambda: split_blocks("output", FOUR, [4], 2), r"output splits \[4\] for 2 ranks and 4 rows"),
        (lambda: split_blocks("output", FOUR, [1, 2], 2), "output splits"),
        (lambda: split_blocks("output", FOUR, [5, -1], 2), "output splits"),
        (lambda: check_number("gather", "output tensors", [1, 2], 3), "gather: 2 output tensors for 3 ranks"),
        (lambda: check_parts("x", "the output", FOUR, torch.zeros(5), 2), "the output has 12 elements, expected 2 x 5"),
        (lambda: check_parts("x", "the output", FOUR, torch.zeros(6).int(), 2), "is of torch.float32, expected"),
        (lambda: check_lengths("x", {0: 4, 2: 8}, [4, 4]), "rank 2 brings 8 bytes, expected 4"),
        (lambda: share_mistake("x", {0: 4, 1: MISTAKE}, None), "rank 1 can't do it; its error says why"),
    ],
)
def test_what_does_not_fit_is_named(check: Callable[[], object], said: str) -> None:
    with pytest.raises(ArgumentError, match=said):
        check()


def test_what_fits_is_none_of_these() -> None:
    check_number("gather", "output tensors", [1, 2], 2)
    check_parts("x", "the output", FOUR, torch.zeros(6), 2)
    check_lengths("x", {0: 4, 2: 8}, [4, 8])
    share_mistake("x", {0: 0, 1: 4}, None)
    with pytest.raises(KeyError):  # this rank's own error is the one that it raises
        share_mistake("x", {0: MISTAKE}, KeyError("own"))
