"""Collective: what the collective methods of a solver have in common."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar, cast

from collectives import Communicator
from scaffe.blobs.held import Together, public
from scaffe.errors import AgreedError
from scaffe.parallel.instances.team import Team
from scaffe.parallel.watch.heartbeats import Heartbeats
from scaffe.parallel.world import World


class HasParts(Protocol):
    """The parts of a solver, as far as its collective methods need them; `closed`: their communicators are freed."""

    team: Team
    collectives: Communicator | None
    watch: Heartbeats | None
    closed: bool


class Trainer(Protocol):
    """A solver, as far as its collective methods need it.

    `failed_alone` says whether its last call failed on this rank alone.
    """

    world: World
    failed_alone: bool

    @property
    def parts(self) -> HasParts:
        """What is built anew for other ranks."""

    @property
    def held(self) -> Together:
        """The arrays of its blobs that users hold."""


P = ParamSpec("P")
Result = TypeVar("Result")
T = TypeVar("T", bound=Trainer)


def collective(method: Callable[Concatenate[T, P], Result]) -> Callable[Concatenate[T, P], Result]:
    """Make a method a public call, an error once closed; note whether it failed on this rank alone.

    A spare only takes part in `solve`.
    """

    @wraps(method)
    def call(self: T, /, *args: P.args, **kwargs: P.kwargs) -> Result:
        if self.world.is_spare and method.__name__ != "solve":
            return cast(Result, None)  # it takes part in solve alone, once it has taken a lost rank's place
        if self.parts.closed and self.parts.collectives is not None:
            raise AgreedError("the solver is closed, and its ranks' communicators are freed; make another")
        self.parts.team.forms.changed()  # a user may have written parameters since the last call
        if self.parts.watch is not None:
            self.parts.watch.take_records()  # another solver of this process may have worked since
        try:
            result = method(self, *args, **kwargs)
        except BaseException as error:
            self.failed_alone = not self.world.is_alike(error)
            raise
        self.failed_alone = False
        return result

    return public(call)


class Recovers(Protocol):
    """A way to recover from the loss of a rank."""

    def part(self, name: str, work: Callable[[], Result]) -> Result:
        """Return `work()`, a part of the job that the ranks that are left do again where one is lost. Collective."""


class HasRecovery(Protocol):
    """A solver whose ranks may go on where one is lost."""

    @property
    def recovery(self) -> Recovers:
        """How they do."""


R = TypeVar("R", bound=HasRecovery)


def retried(name: str) -> Callable[[Callable[Concatenate[R, P], Result]], Callable[Concatenate[R, P], Result]]:
    """Make a method the part of the job of that name, which the ranks that are left do again where one is lost."""

    def decorate(method: Callable[Concatenate[R, P], Result]) -> Callable[Concatenate[R, P], Result]:
        @wraps(method)
        def call(self: R, /, *args: P.args, **kwargs: P.kwargs) -> Result:
            return self.recovery.part(name, lambda: method(self, *args, **kwargs))

        return call

    return decorate
