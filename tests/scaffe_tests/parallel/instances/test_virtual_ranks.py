"""Several instances of a net, each on its share of a batch, have the gradients of one net on the whole batch."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import scaffe
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.net.net import Net
from scaffe.parallel.buckets import make_buckets
from scaffe.parallel.instances.crew import Crew
from scaffe.parallel.instances.gradient_sums import GradientSums
from scaffe.parallel.instances.instances import Instances
from scaffe.parallel.instances.joined_sums import JoinedSums
from scaffe.parallel.instances.places import place
from scaffe.parallel.instances.submissions import Submissions
from scaffe.parallel.instances.topology import read_topology

pytestmark = pytest.mark.mpi_skip
BATCH = 7
MODEL = """
layer { name: "data" type: "MemoryData" top: "data" top: "label"
  memory_data_param { batch_size: 7 channels: 2 height: 9 width: 9 } }
layer { name: "conv" type: "Convolution" bottom: "data" top: "conv"
  convolution_param { num_output: 8 kernel_size: 3 weight_filler { type: "xavier" } } }
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "drop" type: "Dropout" bottom: "conv" top: "conv" }
layer { name: "ip" type: "InnerProduct" bottom: "conv" top: "ip"
  inner_product_param { num_output: 5 weight_filler { type: "xavier" } } }
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "ip" bottom: "label" top: "loss" loss_param { ignore_label: 3 } }
"""


def built(path: Path, **given: Any) -> Net:
    """Return the net on its share of a batch of which some labels do not count."""
    rng = np.random.default_rng(1)
    net = Net(str(path), context=Context(scaffe.TRAIN, seed=5, compute=Compute(threads=1), **given))
    labels = np.array([0, 3, 3, 1, 2, 4, 3], np.float32)
    net.set_input_arrays(rng.normal(size=(BATCH, 2, 9, 9)).astype(np.float32), labels)
    return net


@pytest.mark.parametrize("gather", ["tree:2", "slices", "server"])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_instances_equal_one(tmp_path: Path, size: int, gather: str) -> None:
    (path := tmp_path / "net").write_text(MODEL)
    alone = built(path)
    alone.forward()
    alone.backward()
    joined = JoinedSums(size)
    nets = [built(path, rank=i, size=size, allsums=joined.of(i)) for i in range(size)]
    for net in nets:
        net.share_with(alone)
        assert np.shares_memory(net.packed.data, alone.packed.data)
    buckets = make_buckets(alone, 0)
    parts = [bucket.part for bucket in buckets]
    assert len(parts) == 2
    places = place(str(size), read_topology(), oversubscribe=True)
    made = Instances(str(size), gather=gather).make_gather(
        [one.domain for one in places], [part.stop - part.start for part in parts]
    )
    sums = GradientSums(made, [net.packed.diff for net in nets], parts)
    losses = [0.0] * size

    def work(instance: int) -> None:
        net = nets[instance]
        net.clear_param_diffs()
        net.forward()
        losses[instance] = net.loss()
        submissions = Submissions(instance, net.packed, buckets, sums)
        submissions.begin()
        for layer in reversed(range(len(net.layers))):
            net.backward_layer(layer)
            submissions.submit(layer)
        submissions.finish()

    def failed(error: BaseException) -> None:
        sums.break_off(error)
        joined.break_off(error)

    with Crew(places, failed) as crew:
        for _ in range(2):  # the second overwrites the gradients of the first
            sums.begin()
            for net in nets:
                net.context.batch_number = 0
            crew.run(work)
            np.testing.assert_allclose(nets[0].packed.diff, alone.packed.diff, rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(sum(losses), alone.loss(), rtol=1e-5)
