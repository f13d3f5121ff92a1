"""What this machine's kernel says of memory. Domains other than the machine's own need a machine that has them."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from scaffe.parallel.instances import pages
from scaffe.parallel.instances.pages import UNTOUCHED, domains_of, local_share
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
    assert local_share(array, 0) is None
    array[: 16 * PAGE] = 1
    found = asked(array)
    domains = {one.number for one in read_topology().domains}
    assert found.pop(UNTOUCHED) == 48 * PAGE
    assert sum(found.values()) == 16 * PAGE and set(found) <= domains
    if len(domains) == 1:
        assert local_share(array, *domains) == 1.0
    assert local_share(array, 1 + max(domains)) == 0.0


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
    assert local_share(array, 0) is None
