"""Beyond each paper: costs by hand, one case in short, and what the page says of the rows."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_nccl_takes_its_start_a_tree_s_levels_and_its_bytes() -> None:
    nccl = module("beyond").Nccl
    assert nccl(16, 2).cost("allreduce", 0).seconds == pytest.approx(47e-6)
    assert nccl(1024, 128).cost("allreduce", 0).seconds == pytest.approx(47e-6 + 2 * 6 * 10e-6)
    more = nccl(16, 2).cost("allreduce", 1 << 30).seconds - nccl(16, 2).cost("allreduce", 0).seconds
    assert more == pytest.approx(2 * (1 << 30) * 15 / 16 / 350e9)


def test_the_best_is_never_slower_than_the_paper_s_own_and_its_range_holds_the_gain() -> None:
    beyond = module("beyond")
    found = beyond.times_of(replace(beyond.CASES[1], net="lenet", ranks=16))
    gain = found["over"]["own"]
    assert 1 <= gain["low"] <= gain["value"] == found["ms"]["own"] / found["ms"]["best"] <= gain["high"]
    inside = beyond.divided("-", "lenet", "-", beyond.BARRIERS.machine(1), beyond.Division(1, 28, divided=True), (28,))
    value, low, high = (inside["over"]["own"][key] for key in ("value", "low", "high"))
    assert (low / value, high / value) == pytest.approx((0.79 / 1.21, 1.21 / 0.79))
    assert found["over"]["undivided"]["value"] == found["ms"]["undivided"] / found["ms"]["bf16"]
    assert found["ms"]["slices"] <= found["ms"]["best"] <= found["ms"]["nothing hidden"]
    assert found["ms"]["computing"] < found["ms"]["bf16"] < found["ms"]["best"] < found["ms"]["undivided"]


def test_each_input_is_tried_smaller_and_larger() -> None:
    tried = list(module("beyond").tried("ndr"))
    base = tried[0][0]
    found = [(one["alpha"] / base["alpha"], one["rate_in"] / base["rate_in"], faster) for one, faster in tried]
    ends = [(1, 1, 1), (1 / 3, 1, 1), (3, 1, 1), (1, 2 / 3, 1), (1, 1, 2 / 3), (1, 1.5, 1), (1, 1, 1.5)]
    assert np.array(found) == pytest.approx(np.array(ends))


def test_the_rows_are_those_of_all_cases_and_machines() -> None:
    beyond = module("beyond")
    names = [tuple(one["case"][:4]) for one in beyond.rows()]
    assert names[4:] == [(one.system, one.net, one.batch, one.cluster) for one in beyond.CASES] and len(names[:4]) == 4
    lines = list(beyond.page())
    assert sum(line.startswith("| ") for line in lines) == 3 + sum(len(one["over"]) for one in beyond.rows())
