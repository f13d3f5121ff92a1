"""Propagation: how the root's parameters reach the other ranks before an iteration uses them.

Every way has the same methods. `post()` starts it for all layers, `wait(i)` returns once layer i's parameters are
here, `sync()` once all are; `changed()` says that the root's parameters are newer than the others'.
"""

from __future__ import annotations

from scaffe.packed import PackedParameters
from scaffe.parallel.world import World


class BlockingPropagate:
    """One broadcast of all parameters before the forward pass (SC-B, S-Caffe section 4.1)."""

    def __init__(self, world: World, packed: PackedParameters):
        self.world, self.packed = world, packed
        self.stale = True

    def post(self) -> None:
        """Broadcast, unless nothing changed since the last time. Collective."""
        if self.stale:
            self.world.comm.Bcast(self.packed.data, self.world.root)
            self.stale = False

    def wait(self, layer: int) -> None:
        """Return at once: post waited for everything."""

    def sync(self) -> None:
        """Make all ranks' parameters the root's, before a test or a snapshot. Collective."""
        self.post()

    def changed(self) -> None:
        """Note that the root has updated its parameters. Called on all ranks alike."""
        self.stale = True
