"""Aggregation: how the ranks' gradients meet, and who updates what when.

Every way has the same methods. `submit(i)` says that layer i's gradients of this pass are complete here;
`drain()` returns when all sums are, and all updates done where they are to be done. The ways call
`update(indices)` on the rank that holds complete sums of those parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.packed import PackedParameters
from scaffe.parallel.world import World


class BlockingAggregate:
    """One reduce of all gradients to the root after the backward pass (SC-B, S-Caffe section 4.1).

    `prepare()` is called on the root once all sums are complete, before the update: gradient clipping needs
    the norm of them all.
    """

    def __init__(
        self,
        world: World,
        packed: PackedParameters,
        update: Callable[[Sequence[int]], None],
        prepare: Callable[[], object] = lambda: None,
    ):
        self.world = world
        self.update, self.prepare = update, prepare
        self.packed = packed
        self.learned = [i for i, parameter in enumerate(packed.parameters) if not parameter.statistic]

    def submit(self, layer: int) -> None:
        """Do nothing: drain reduces all layers at once."""

    def drain(self) -> None:
        """Reduce, and update on the root. Collective."""
        self._reduce()
        if self.world.is_root:
            self.prepare()
            self.update(self.learned)

    def _reduce(self) -> None:
        if self.world.size == 1:
            return
        from mpi4py import MPI

        diff = self.packed.diff[self.packed.learned]
        if self.world.is_root:
            self.world.comm.Reduce(MPI.IN_PLACE, diff, MPI.SUM, self.world.root)
        else:
            self.world.comm.Reduce(diff, None, MPI.SUM, self.world.root)
