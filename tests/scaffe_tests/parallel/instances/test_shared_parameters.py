"""Instances of a NUMA domain share their nets' parameters; each domain has its own."""

from __future__ import annotations

import numpy as np
import pytest
from over_ranks import net_of

from scaffe.parallel.instances.places import Place
from scaffe.parallel.instances.shared_parameters import share

pytestmark = pytest.mark.mpi_skip
NET = """
layer { name: "d" type: "DummyData" top: "d" dummy_data_param { shape { dim: 2 dim: 3 } } }
layer { name: "ip" type: "InnerProduct" bottom: "d" top: "y" inner_product_param { num_output: 4 } }
"""


def test_each_domain_has_one_copy() -> None:
    nets = [net_of(NET) for _ in range(5)]
    places = [Place(i, domain, (0,)) for i, domain in enumerate([4, 4, 7, 7, 7])]
    firsts = share(places, nets)
    assert firsts == [nets[0], nets[2]]
    firsts[0].packed.data[...], firsts[1].packed.data[...] = 1, 2
    assert [float(net.layers[1].blobs[0].array.mean()) for net in nets] == [1, 1, 2, 2, 2]
    assert not np.shares_memory(nets[1].packed.data, nets[2].packed.data)
