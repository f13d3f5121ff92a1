"""Collective: what the collective methods of a solver have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from collectives import Communicator
from scaffe.errors import AgreedError
from scaffe.held import Together, public
from scaffe.parallel.instances.team import Team
from scaffe.parallel.world import World


class Trainer(Protocol):
    """A solver, as far as its collective methods need it.

    `closed` says whether its communicators are freed, `failed_alone` whether its last call failed on this rank alone.
    """

    world: World
    team: Team
    collectives: Communicator | None
    closed: bool
    failed_alone: bool

    @property
    def held(self) -> Together:
        """The arrays of its blobs that users hold."""


P = ParamSpec("P")
Result = TypeVar("Result")
T = TypeVar("T", bound=Trainer)


def collective(method: Callable[Concatenate[T, P], Result]) -> Callable[Concatenate[T, P], Result]:
    """Make a method a public call, an error once closed; note whether it failed on this rank alone."""

    @wraps(method)
    def call(self: T, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if self.closed and self.collectives is not None:
            raise AgreedError("the solver is closed, and its ranks' communicators are freed; make another")
        self.team.forms.changed()  # a user may have written parameters since the last call
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            self.failed_alone = not self.world.is_alike(error)
            raise
        self.failed_alone = False
        return result

    return public(call)


class Lasting(Protocol):
    """A solver whose ranks go on where one is lost."""

    def _lasting(self, part: Callable[[], Result]) -> Result:
        """Return `part()`, which the ranks that are left do again where one is lost. Collective."""


L = TypeVar("L", bound=Lasting)


def lasting(method: Callable[Concatenate[L, P], Result]) -> Callable[Concatenate[L, P], Result]:
    """Make a method one part of the job, which the ranks that are left do again where one is lost meanwhile."""

    @wraps(method)
    def call(self: L, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        return self._lasting(lambda: method(self, *args, **kwargs))

    return call
