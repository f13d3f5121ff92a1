from __future__ import annotations

from pathlib import Path

import pytest

import scaffe
from scaffe.net.net import Net
from scaffe.parallel.buckets import make_buckets
from scaffe.parallel.instances.gradient_sums import GradientSums
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.submissions import Submissions

pytestmark = pytest.mark.mpi_skip
INPUT = 'layer { name: "data" type: "Input" top: "data" input_param { shape { dim: 2 dim: 4 } } }\n'
INNER = """
layer {{ name: "{0}" type: "InnerProduct" bottom: "{1}" top: "{0}" {2} inner_product_param {{ num_output: 4 }} }}
"""
SHARED = 'param { name: "w" } param { name: "b" }'


def test_a_bucket_is_given_once_all_layers_that_use_it_are_submitted(tmp_path: Path) -> None:
    (path := tmp_path / "net").write_text(
        INPUT
        + INNER.format("ip1", "data", SHARED)
        + INNER.format("ip2", "ip1", "")
        + INNER.format("ip3", "ip2", SHARED)
    )
    net = Net(str(path), scaffe.TRAIN)
    buckets, given = make_buckets(net, 0), []
    lengths = [bucket.part.stop - bucket.part.start for bucket in buckets]
    sums = GradientSums(
        Instances("1", "slices").make_gather([0], lengths),
        [net.packed.diff],
        [bucket.part for bucket in buckets],
        given.append,
    )
    net.packed.diff[...] = 5
    net.clear_param_diffs()  # zeros that are written when a bucket is given
    submissions = Submissions(0, net.packed, buckets, sums)
    for _ in range(2):
        submissions.begin()
        submissions.submit(3)
        assert given == []  # ip1 uses ip3's parameters
        submissions.submit(2)
        assert given == [1]
        submissions.submit(1)
        submissions.submit(0)  # without parameters
        submissions.finish()
        assert given == [1, 0]
        assert not any(net.packed._diff[part].any() for part in net.packed.slices)
        sums.begin()
        given.clear()
