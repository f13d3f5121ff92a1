"""Callbacks: users' functions that a solver calls in each iteration, as pycaffe's add_callback adds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from scaffe.net.net import Net
from scaffe.parallel.instances.team import Team
from scaffe.parallel.propagate import Propagate
from scaffe.training.written import Written

Function = Callable[[], object]


class SumOverRanks:
    """A callback that stands for the sum of the gradients over the ranks, which the workflow computes."""

    def on_start(self) -> None:
        """Do nothing: the workflow broadcasts the parameters."""

    def on_gradients_ready(self) -> None:
        """Do nothing: the workflow sums the gradients."""


class SolverCallbacks:
    """The functions that users have added to a solver, each list in the order of their addition.

    - `starts`: called before the first forward pass of an iteration.
    - `before`: called after the last backward pass, before the sums of gradients are complete: those of the callbacks
      that precede the first SumOverRanks.
    - `after`: called once all sums are complete on all ranks, before the update.
    """

    def __init__(self) -> None:
        self.starts: list[Function] = []
        self.before: list[Function] = []
        self.after: list[Function] = []
        self._reduces = False

    def __bool__(self) -> bool:
        """Return whether there is a function to call."""
        return bool(self.starts or self.before or self.after)

    def add(self, on_start: Any, on_gradients_ready: Any = None) -> None:
        """Add two functions, or one object with methods of these names. Raise TypeError for anything else."""
        if isinstance(on_start, SumOverRanks) and on_gradients_ready is None:
            if not self._reduces:
                self.before, self.after, self._reduces = self.after, [], True
            return
        if on_gradients_ready is None:
            on_start, on_gradients_ready = (_method(on_start, name) for name in ("on_start", "on_gradients_ready"))
        for function in (on_start, on_gradients_ready):
            if not callable(function):
                raise TypeError(f"add_callback takes functions without arguments, got {type(function).__name__}")
        self.starts.append(on_start)
        self.after.append(on_gradients_ready)


def _method(given: Any, name: str) -> Any:
    """Return a method of a callback object. Raise TypeError if it has none."""
    try:
        return getattr(given, name)
    except AttributeError:
        raise TypeError(
            "add_callback takes two functions, on_start and on_gradients_ready, or an object with these methods; "
            f"{type(given).__name__} has no {name}"
        ) from None


class Caller(Protocol):
    """The parts of a solver, as far as calling users' functions needs them."""

    callbacks: SolverCallbacks
    team: Team
    written: Written

    @property
    def propagate(self) -> Propagate:
        """How the root's parameters reach the other ranks."""

    @property
    def users_nets(self) -> list[Net]:
        """The nets that users see."""


class CalledFunctions:
    """Call a solver's callbacks at their points, on all ranks; the arrays that users hold show the present values.

    A workflow has this object on all ranks once any rank has added a function: a rank without functions takes part in
    the broadcasts that the others' functions need.
    """

    def __init__(self, parts: Caller):
        self.parts = parts

    def start(self) -> None:
        """Call the functions before an iteration, which begins with the parameters that the root has then. Collective.

        They read the root's parameters on all ranks.
        """
        parts = self.parts
        parts.propagate.sync()
        self._call(parts.callbacks.starts)
        if parts.written.by_functions():
            parts.propagate.changed()

    def computed(self) -> None:
        """Call the functions that precede the sums."""
        self._call(self.parts.callbacks.before)

    def summed(self) -> None:
        """Call the functions that read the sums."""
        self._call(self.parts.callbacks.after)

    def _call(self, functions: Sequence[Function]) -> None:
        if not functions:
            return
        nets = self.parts.users_nets
        for net in nets:
            net.held.show()
        self.parts.written.call(functions, nets)
        for net in nets:
            net.held.absorb()
        self.parts.team.forms.changed()  # they may have written parameters
