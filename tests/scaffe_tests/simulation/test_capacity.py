"""A batch that a described device has no memory for is refused."""

from __future__ import annotations

import pytest

from scaffe.cli import main
from scaffe.errors import ScaffeError
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.capacity import footprint
from scaffe.simulation.iteration import build

BEST = ("--best",)


def test_a_nets_bytes_are_those_of_its_blobs_and_parameters() -> None:
    net = build("lenet", 2)
    blobs = 2 * (28 * 28 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10) + 1
    assert footprint(net) == 8 * blobs + 3 * net.packed.nbytes


def test_what_just_fits_is_simulated_and_a_byte_less_is_refused() -> None:
    net = build("lenet", 2)
    cluster, needed = find_cluster("ndr"), footprint(net)
    assert simulate_iteration(net, 2, cluster.with_(capacity=needed)).seconds > 0
    with pytest.raises(
        ScaffeError, match="its batch and parameters take .* GB, a device of ndr has .* GB; give a smaller"
    ):
        simulate_iteration(net, 2, cluster.with_(capacity=needed - 1))
    assert simulate_iteration(net, 2, cluster.with_(capacity=0)).seconds > 0  # no limit


def test_best_refuses_it_too(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["simulate", "--net", "vgg16", "--ranks", "16", "--cluster", "dragonfly", "--batch", "1024", *BEST]) == 2
    )
    assert "GB, a device of dragonfly has 80 GB; give a smaller --batch" in capsys.readouterr().err


def test_a_group_of_a_dragonfly_is_a_supernode() -> None:
    links = find_cluster("dragonfly").links
    assert links.nodes_per_supernode * links.ranks_per_node == 512
