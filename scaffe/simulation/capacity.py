"""Capacity: whether a net's batch fits the memory of a described cluster's device."""

from __future__ import annotations

from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.simulation.clusters import DescribedCluster

COPIES = 3  # of the parameters: values, gradients, history


def footprint(net: Net) -> int:
    """Return the bytes of a net that trains: its blobs' data and gradients, and its parameters with a rule's history.

    What layers keep besides, such as a convolution's scratch memory, does not count.
    """
    blobs = sum(blob.count for blob in net.blobs.values())
    return 4 * 2 * blobs + COPIES * net.packed.nbytes


def check_capacity(net: Net, cluster: DescribedCluster) -> None:
    """Raise ScaffeError unless the net fits a device, whose bytes a cluster with a limit gives."""
    needed, capacity = footprint(net), cluster["capacity"]
    if 0 < capacity < needed:
        raise ScaffeError(
            f"net '{net.name}': its batch and parameters take {needed / 1e9:.3g} GB, a device of {cluster.name} has "
            f"{capacity / 1e9:.3g} GB; give a smaller --batch"
        )
