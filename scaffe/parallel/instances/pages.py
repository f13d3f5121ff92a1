"""Pages: in which NUMA domain an array's memory lies, as the kernel says."""

from __future__ import annotations

import ctypes
import mmap
import os
import platform
from collections import Counter
from collections.abc import Iterable

import numpy as np

from scaffe.parallel.instances.places import Place

MOVE_PAGES = {"x86_64": 279, "aarch64": 239}  # the number of the system call
UNTOUCHED = -1  # in place of a domain: no memory yet


def domains_of(array: np.ndarray) -> Counter[int] | None:
    """Return the bytes of a contiguous array in each NUMA domain, by the domain's number.

    Whole pages are counted. Pages that were never written, or only read, are counted as UNTOUCHED. Return None where
    the kernel gives no answer: another system, or a container that forbids move_pages.
    """
    page = mmap.PAGESIZE
    first = array.ctypes.data // page * page
    addresses = np.arange(first, array.ctypes.data + array.nbytes, page, dtype=np.uintp)
    places = np.zeros(addresses.size, np.intc)
    if not array.nbytes:
        return Counter()
    if not _ask(addresses, places):
        return None
    numbers, counts = np.unique(np.maximum(places, UNTOUCHED), return_counts=True)
    return Counter({int(number): int(count) * page for number, count in zip(numbers, counts, strict=True)})


def _ask(addresses: np.ndarray, places: np.ndarray) -> bool:
    """Write the domain of each page, or a negative error, into `places`; return whether the kernel answered."""
    number = MOVE_PAGES.get(platform.machine())
    if number is None or os.uname().sysname != "Linux":
        return False
    call = ctypes.CDLL(None, use_errno=True).syscall
    count, flags = ctypes.c_ulong(addresses.size), ctypes.c_int(0)
    pages, status = ctypes.c_void_p(addresses.ctypes.data), ctypes.c_void_p(places.ctypes.data)
    myself, nowhere = ctypes.c_int(0), ctypes.c_void_p(None)  # no target: nothing is moved
    return bool(call(ctypes.c_long(number), myself, count, pages, nowhere, status, flags) == 0)


def where(place: Place, arrays: Iterable[np.ndarray]) -> str:
    """Return an instance's place and memory: "instance 1: domain 0, cores 28-55, 98 % of 1.21 GB there"."""
    total: Counter[int] = Counter()
    for array in arrays:
        found = domains_of(array)
        if found is None:
            return f"{place}; the kernel does not say where its memory lies"
        total += found
    touched = sum(total.values()) - total[UNTOUCHED]
    percent = 100 * total[place.domain] / max(1, touched)
    return f"{place}, {percent:.0f} % of {touched / 1e9:.3g} GB there"
