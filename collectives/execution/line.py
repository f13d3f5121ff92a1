"""Line: the plans of a communicator that are under way. They run one after the other, in the order of their starts."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from collectives.errors import ArgumentError
from collectives.loss import raises_rank_lost

P = ParamSpec("P")
T = TypeVar("T")


class BegunPlan(Protocol):
    """A plan that has been started. `failure`: the error of an advance by another, which it has yet to raise."""

    failure: Exception | None

    def advance(self) -> bool:
        """Advance without waiting; return whether the end is reached."""

    def finish(self) -> None:
        """Wait for the end."""


class Line:
    """Messages of two plans of a communicator would match each other, so only the first of the line has any."""

    def __init__(self) -> None:
        self.plans: list[BegunPlan] = []

    def join(self, plan: BegunPlan) -> None:
        """Put a plan at the end."""
        self.plans.append(plan)

    def leave(self, plan: BegunPlan) -> None:
        """Remove a plan that has ended or failed, if it is there."""
        if plan in self.plans:
            self.plans.remove(plan)

    def check_ended(self, plan: BegunPlan, what: str) -> None:
        """Raise ArgumentError while the plan is under way."""
        if plan in self.plans:
            raise ArgumentError(f"can't {what} a plan that is under way; finish it first")

    def is_turn(self, plan: BegunPlan) -> bool:
        """Advance the plans before this one, without waiting; return whether all of them have ended."""
        while self.plans and self.plans[0] is not plan:
            first = self.plans[0]
            try:
                if not first.advance():
                    return False
            except Exception as error:
                first.failure = error
                raise
        return True

    def finish(self) -> None:
        """Wait for all plans, in their order."""
        while self.plans:
            first = self.plans[0]
            try:
                first.finish()
            except Exception as error:
                first.failure = error
                raise


def in_order(method: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """Make a collective method of a communicator wait first for its line; raise RankLostError once a rank is lost."""

    @raises_rank_lost
    @wraps(method)
    def call(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> T:
        self._line.finish()
        return method(self, *args, **kwargs)

    return call
