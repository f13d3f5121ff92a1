"""Written: whether users can have written into parameters between two steps."""

from __future__ import annotations

from collections.abc import Iterable

from scaffe.net import Net
from scaffe.parallel.world import World


class Written:
    """Whether a user of any rank has asked for a parameter's array, which can be kept, and written into later."""

    def __init__(self, world: World):
        self._world, self._versions, self._any = world, 0, False

    def note(self, nets: Iterable[Net]) -> None:
        """Note the arrays that have been handed out until now, by training itself."""
        self._versions = parameter_versions(nets)

    def by_users(self, nets: Iterable[Net]) -> bool:
        """Return whether any rank has handed out an array since a `note`. Collective."""
        mine = parameter_versions(nets) != self._versions
        if self._world.size == 1:
            return False
        self._any = self._any or bool(self._world.allsum(mine))
        return self._any


def parameter_versions(nets: Iterable[Net]) -> int:
    """Return a number that grows whenever a parameter's array is handed out."""
    return sum(blob.values.version for net in nets for layer in net.layers for blob in layer.blobs)
