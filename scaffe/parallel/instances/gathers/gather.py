"""Gather: which additions sum the gradients of a rank's instances, and when each may be done.

A gather is a state machine. It holds no array, no lock and no thread: `GradientSums` runs it with threads, and the
tests run it with a made-up scheduler. Buffer i is instance i's `diff`; the sums are completed in buffer RESULT, which
is instance 0's. A class in a module of its own in this package is registered by the module's last line; then --gather
knows its name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from scaffe.errors import ScaffeError

RESULT = 0  # the buffer of the sums
LINE = 16  # elements in 64 bytes: no two threads write one cache line


@dataclass(frozen=True)
class Addition:
    """Add the other sources' [start:stop] to those of the first, `target`, in the order of `sources`.

    `start` and `stop` count a bucket's elements. Sources are buffers, which hold gradients or partial sums. A single
    source is a sum already, and nothing is done.
    """

    bucket: int
    start: int
    stop: int
    sources: tuple[int, ...]

    @property
    def target(self) -> int:
        """The buffer that is written: the first source."""
        return self.sources[0]

    @property
    def moved(self) -> int:
        """Elements that it reads and writes."""
        return (len(self.sources) + 1) * (self.stop - self.start) if len(self.sources) > 1 else 0


class Gather:
    """Base class: the state of one iteration's sums over instances, bucket by bucket.

    `domains` holds the NUMA domain of each instance, `lengths` the elements of each bucket. `number` is the number in
    the gather's name, such as 2 in tree:2. With `deterministic` sums repeat bit for bit; without, only if `repeats`.
    A caller makes all calls under one lock, and does the additions that a call returns outside of it. Each addition is
    passed to `added` when it is complete. The last addition to a bucket writes RESULT; other buffers can hold partial
    sums then.

    A gather overrides `given` and `added`, `prepare` and `reset` where it has a state of its own, `owed` where `given`
    leaves additions to other threads, and these declarations:

    - `name`: for --gather; unique.
    - `number_by_default`: of the number in the name; 0 if the name has none.
    - `repeats`: whether sums repeat bit for bit without `deterministic` too.
    """

    name: ClassVar[str] = ""
    number_by_default: ClassVar[int] = 0
    repeats: ClassVar[bool] = True

    def __init__(self, domains: Sequence[int], lengths: Sequence[int], number: int = 0, deterministic: bool = False):
        self.domains, self.lengths = tuple(domains), tuple(lengths)
        self.number, self.deterministic = number or self.number_by_default, deterministic
        if min(self.lengths, default=1) < 1:
            raise ValueError(f"a bucket needs elements, got buckets of {self.lengths}")
        self.prepare()
        self.begin()

    @property
    def size(self) -> int:
        """The number of instances."""
        return len(self.domains)

    def begin(self) -> None:
        """Begin an iteration: nothing is given. No instance may be at work."""
        self.complete = [False] * len(self.lengths)
        self._given = [set[int]() for _ in self.lengths]
        self.reset()

    def give(self, instance: int, bucket: int) -> list[Addition]:
        """Note that an instance's gradients of a bucket are complete; return the additions that its thread does now.

        Raise ValueError where it has given the bucket before in this iteration.
        """
        if instance in self._given[bucket]:
            raise ValueError(f"instance {instance} has already given bucket {bucket}")
        self._given[bucket].add(instance)
        return self.given(instance, bucket) + self.owed(instance)

    def all_given(self, bucket: int) -> bool:
        """Return whether all instances have given a bucket."""
        return len(self._given[bucket]) == self.size

    @property
    def is_complete(self) -> bool:
        """Whether all sums are complete."""
        return all(self.complete)

    # To be overridden.

    def prepare(self) -> None:
        """Make what is the same in all iterations."""

    def reset(self) -> None:
        """Set the state to that before an iteration."""

    def given(self, instance: int, bucket: int) -> list[Addition]:
        """Return the additions that follow a gift, for the giver's thread."""
        raise NotImplementedError

    def added(self, addition: Addition) -> list[Addition]:
        """Note that an addition is complete; return those that follow, for the same thread.

        Set `complete[bucket]` with the bucket's last addition.
        """
        raise NotImplementedError

    def owed(self, instance: int) -> list[Addition]:
        """Return, once, the additions that others' gifts have left to this instance's thread."""
        return []


_registered: dict[str, type[Gather]] = {}


def register(gather: type[Gather]) -> None:
    """Register a gather by its name. Raise ValueError if the name is empty or taken."""
    if gather.name in ("", "auto", *_registered):
        raise ValueError(f"{gather.__qualname__} needs a name of its own, not '{gather.name}'")
    _registered[gather.name] = gather


def registered() -> Mapping[str, type[Gather]]:
    """Return all gathers by name."""
    return _registered


def known() -> str:
    """Return the gathers' names as errors and help list them: slices, tree:2."""
    return ", ".join(
        f"{kind.name}:{kind.number_by_default}" if kind.number_by_default else kind.name
        for kind in _registered.values()
    )


def make_gather(text: str, domains: Sequence[int], lengths: Sequence[int], deterministic: bool = False) -> Gather:
    """Return the gather of a name such as "tree:2"; the other arguments are Gather's. Raise ScaffeError."""
    kind, number = find_gather(text)
    return kind(domains, lengths, number, deterministic)


def find_gather(text: str) -> tuple[type[Gather], int]:
    """Return the gather of a name such as "tree:2", and the number in it, 0 for none. Raise ScaffeError."""
    parts = re.fullmatch(r"(\w+)(?::(\d{1,6}))?", text)
    kind = _registered.get(parts[1]) if parts else None
    if parts is None or kind is None:
        raise ScaffeError(f"unknown gather '{text}'; known: {known()}")
    number = int(parts[2]) if parts[2] else 0
    if parts[2] and not kind.number_by_default:
        raise ScaffeError(f"gather '{text}': {kind.name} takes no number; known: {known()}")
    if parts[2] and number < 1:
        raise ScaffeError(f"gather '{text}': the number must be 1 or more")
    return kind, number
