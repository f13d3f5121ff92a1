"""What this machine's kernel says of memory. Domains other than the machine's own need a machine that has them."""

from __future__ import annotations

import mmap
from collections import Counter

import numpy as np
import pytest

from scaffe.parallel.instances import pages
from scaffe.parallel.instances.pages import UNTOUCHED, domains_of, where
from scaffe.parallel.instances.places import Place
from scaffe.parallel.instances.topology import read_topology

pytestmark = pytest.mark.mpi_skip
PAGE = mmap.PAGESIZE


def asked(array: np.ndarray) -> dict[int, int]:
    found = domains_of(array)
    if found is None:
        pytest.skip("the kernel does not say where memory lies")
    return dict(found)


def test_memory_lies_nowhere_before_it_is_written() -> None:
    memory = mmap.mmap(-1, 64 * PAGE)
    memory.madvise(mmap.MADV_NOHUGEPAGE)  # a huge page would be there as a whole
    array = np.frombuffer(memory, np.uint8)
    assert asked(array) == {UNTOUCHED: 64 * PAGE}
    array[: 16 * PAGE] = 1
    found = asked(array)
    domains = {one.number for one in read_topology().domains}
    assert found.pop(UNTOUCHED) == 48 * PAGE
    assert sum(found.values()) == 16 * PAGE and set(found) <= domains


def test_a_page_counts_whole() -> None:
    array = np.ones(3 * PAGE, np.uint8)
    offset = -array.ctypes.data % PAGE
    assert sum(asked(array[offset : offset + 1]).values()) == PAGE
    assert sum(asked(array[offset + PAGE - 1 : offset + PAGE + 1]).values()) == 2 * PAGE
    assert asked(array[:0]) == {}


def test_a_kernel_that_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    array = np.ones(10, np.float32)
    monkeypatch.setattr(pages, "MOVE_PAGES", {})
    assert domains_of(array) is None
    assert where(Place(0, 0, (1,)), [array]) == (
        "instance 0: domain 0, core 1; the kernel does not say where its memory lies"
    )


def test_how_a_place_and_its_memory_read(monkeypatch: pytest.MonkeyPatch) -> None:
    found = iter([Counter({0: 1_170_000_000, 1: 20_000_000}), Counter({0: 15_800_000, 1: 4_200_000, UNTOUCHED: 9})])
    monkeypatch.setattr(pages, "domains_of", lambda array: next(found))
    text = where(Place(1, 0, tuple(range(28, 56))), [np.zeros(1), np.zeros(1)])
    assert text == "instance 1: domain 0, cores 28-55, 98 % of 1.21 GB there"
    found = iter([Counter({UNTOUCHED: 4096})])
    assert where(Place(0, 0, (0,)), [np.zeros(1)]) == "instance 0: domain 0, core 0, 0 % of 0 GB there"
