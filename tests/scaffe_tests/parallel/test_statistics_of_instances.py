"""What instances measure is averaged by their rows, and each goes on with the average in memory of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import scaffe
from scaffe.context import Context
from scaffe.net.net import Net
from scaffe.parallel.statistics import Statistics
from scaffe.parallel.world import open_world

pytestmark = pytest.mark.mpi_skip
MODEL = """
layer { name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 5 channels: 2 height: 1 width: 1 } }
layer { name: "bn" type: "BatchNorm" bottom: "data" top: "bn" }
layer { name: "ip" type: "InnerProduct" bottom: "bn" top: "ip" inner_product_param { num_output: 3 } }
"""


def test_measured_values_are_averaged_by_rows(tmp_path: Path) -> None:
    (path := tmp_path / "net").write_text(MODEL)
    first, second = (Net(str(path), context=Context(scaffe.TRAIN, rank=i, size=2)) for i in range(2))
    second.share_with(first)
    statistics = Statistics(open_world(), [first, second])
    means = [net.params["bn"][0].array for net in (first, second)]
    assert not np.shares_memory(*means)
    means[0][...], means[1][...] = [10, 20], [5, 0]
    statistics.average()
    rows = [net.context.local_rows for net in (first, second)]
    assert sorted(rows) == [2, 3]
    expected = [(10 * rows[0] + 5 * rows[1]) / 5, 20 * rows[0] / 5]
    for mean in means:
        np.testing.assert_allclose(mean, expected, rtol=1e-6)
    assert np.shares_memory(first.packed.data, second.params["ip"][0].array)
