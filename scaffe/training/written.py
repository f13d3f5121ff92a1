"""Written: whether users can have written into parameters: between two steps, or in functions that a step calls."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from scaffe.net.net import Net
from scaffe.parallel.world import World


class Written:
    """Whether a user of any rank has asked for a parameter's array, which can be kept, and written into later."""

    def __init__(self, world: World):
        self._world, self._versions, self._any = world, 0, False
        self._functions_did = False  # whether a function of this rank asked for an array

    def forget(self) -> None:
        """Agree anew at the next question: some ranks may have had no answer to the last one."""
        self._any = False

    def note(self, nets: Iterable[Net]) -> None:
        """Note the arrays that have been handed out until now, by training itself."""
        self._versions = parameter_versions(nets)

    def by_users(self, nets: Iterable[Net]) -> bool:
        """Return whether any rank has handed out an array since a `note`. Collective."""
        return self._agree(self._functions_did or parameter_versions(nets) != self._versions)

    def call(self, functions: Iterable[Callable[[], object]], nets: Sequence[Net]) -> None:
        """Call users' functions in a step, and note the arrays that they ask for."""
        before = parameter_versions(nets)
        for function in functions:
            function()
        self._functions_did = self._functions_did or parameter_versions(nets) != before

    def by_functions(self) -> bool:
        """Return whether any rank has handed out an array to a function, or before a step. Collective."""
        return self._agree(self._functions_did)

    def _agree(self, mine: bool) -> bool:
        if self._world.size == 1:
            return False
        self._any = self._any or bool(self._world.allsum(mine))
        return self._any


def parameter_versions(nets: Iterable[Net]) -> int:
    """Return a number that grows whenever a parameter's array is handed out."""
    return sum(blob.values.version for net in nets for layer in net.layers for blob in layer.blobs)
