"""A part of PyTorch's own tests passes over the backend scaffe; jobs/torch_suite.py runs all of them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PARTS = (
    "all_reduce_",
    "reduce_full",
    "all_to_all",
    "broadcast",
    "send_recv",
    "monitored",
    "no_sync",
    "grad_div",
    "sparse_all",
)
LEAST = 40  # tests that pass

pytestmark = [
    pytest.mark.mpi_skip,
    pytest.mark.watchdog(600),
    pytest.mark.skipif(
        not (importlib.util.find_spec("torch") and importlib.util.find_spec("expecttest")),
        reason="needs PyTorch and expecttest: pip install 'scaffe[torch]' expecttest",
    ),
]


def test_a_part_of_pytorchs_suite_passes(mpirun) -> None:
    parts = [word for part in PARTS for word in ("-k", part)]
    done = mpirun(4, sys.executable, ROOT / "jobs/torch_suite.py", *parts, timeout=300)
    counts = re.search(r"scaffe, 4 ranks: (\d+) passed, (\d+) failed", done.stdout)
    assert counts and int(counts[1]) >= LEAST and counts[2] == "0", done.stdout[-3000:] + done.stderr[-1000:]
