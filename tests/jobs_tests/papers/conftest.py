"""The folders of the figures and of the benchmarks on sys.path, for the tests of a file."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from paper_figures import FOLDERS


@pytest.fixture(autouse=True, scope="module")
def path() -> Iterator[None]:
    """The folders on sys.path, and their modules gone afterwards: jobs/faults.py and others have the same names."""
    before = set(sys.modules)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*FOLDERS, *sys.path])
        yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(FOLDERS)):
            del sys.modules[name]
