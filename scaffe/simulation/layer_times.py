"""LayerTimes: the seconds of each layer's passes on a rank, by a profile or by a described device."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from scaffe.errors import ScaffeError
from scaffe.net.net import Net
from scaffe.simulation.clusters import DescribedCluster
from scaffe.tools.benchmark import batch_size
from scaffe.tools.work import layer_works
from scaffe.training.replay import Profile, load

UPDATED = 5  # times that an update by momentum moves each parameter: reads value, history and gradient, writes two


@dataclass(frozen=True)
class LayerTimes:
    """Seconds by layer, and of the update of one parameter.

    `record_bytes` is what a rank reads for a batch, one byte for each element of the first blob.
    """

    forward: Sequence[float]
    backward: Sequence[float]
    update: float
    record_bytes: float = 0.0

    @property
    def computing(self) -> float:
        """The seconds of both passes."""
        return sum(self.forward) + sum(self.backward)


def layer_times(net: Net, cluster: DescribedCluster, profile: str | os.PathLike[str] | Profile | None) -> LayerTimes:
    """Return the times of a profile, or of its file; without one those of the cluster's devices."""
    given = load(profile) if isinstance(profile, (str, os.PathLike)) else profile
    return of_profile(net, given) if given else of_device(net, cluster)


def of_profile(net: Net, profile: Profile) -> LayerTimes:
    """Return a profile's times; of a profile for another batch, in proportion. Raise ScaffeError for another net's."""
    missing = [layer.label for layer in net.layers if layer.label not in profile.layers]
    if missing:
        raise ScaffeError(f"{profile.source}: no times for layer '{missing[0]}', one of {len(missing)} without")
    part = batch_size(net) / profile.batch if profile.batch else 1.0
    forward, backward = ([part * profile.layers[layer.label][way] for layer in net.layers] for way in (0, 1))
    return LayerTimes(forward, backward, profile.update / max(1, _count(net)), _record_bytes(net))


def of_device(net: Net, cluster: DescribedCluster) -> LayerTimes:
    """Return the times in which a device does the operations, or moves the bytes, of each pass: the longer one."""
    works = layer_works(net)

    def seconds(label: str, way: int) -> float:
        work = works[label]
        moved = work.moved[way] + (work.parameters + way * 2 * work.gradients) * bool(work.moved[way])
        if not work.units or not (moved or work.flops[way]):
            return 0.0
        return max(work.flops[way] / cluster["flops"], moved / cluster["memory"]) + cluster["launch"]

    forward, backward = ([seconds(layer.label, way) for layer in net.layers] for way in (0, 1))
    each = net.packed.flat.itemsize * UPDATED / cluster["memory"]
    return LayerTimes(forward, backward, each, _record_bytes(net))


def _count(net: Net) -> int:
    return sum(parameter.blob.count for parameter in net.packed.parameters)


def _record_bytes(net: Net) -> float:
    """Return the elements of the first blob with several axes, a batch's images."""
    return float(next((blob.count for blob in net.blobs.values() if len(blob.shape) > 1), 0))
