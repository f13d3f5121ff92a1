"""Instances: into how many replicas of the net, run by threads, a rank divides its work."""

from __future__ import annotations

import re
from dataclasses import dataclass

import scaffe.parallel.instances.gathers  # noqa: F401  registers the gathers
from scaffe.errors import ScaffeError
from scaffe.parallel.instances.gathers.gather import Gather, find_gather, known, make_gather
from scaffe.setting import check_fields, setting

AUTO = "auto"
MOST = 1024  # instances of a rank: each has a thread, and parameters of its own
MOST_DELAY = 3600.0  # seconds; a signal waits that long
WORDS = (AUTO, "numa", "core")
HELP = "nets in threads: N, numa, core, x:C, auto"


def _text(given: object) -> str:
    """Return a value that a program or a file can have, such as a number, as a flag's text."""
    is_number = isinstance(given, (int, float)) and not isinstance(given, bool)
    return f"{given:.12g}" if is_number else str(given)


@dataclass(frozen=True)
class Instances:
    """How a rank divides its work over instances: replicas of the net, each run by a thread on cores of its own.

    - `n`: a number to 1,024, "numa" for one in each NUMA domain, "core" for one on each core, "x:C" for one on each C
      cores, or "auto". A number can be given as such.
    - `gather`: how their gradients are summed: "tree:2", "slices", "server", or "auto".
    - `launch_groups`, `launch_delay`: so many groups of instances start that many seconds apart, or "auto" (ParaX,
      section 4.4).
    - `oversubscribe`: allows more instances than cores.

    Raise ScaffeError for other values. Whether sums must repeat bit for bit is said by Compute.deterministic.
    """

    n: str = setting("1", HELP, metavar="N", flag="instances", parse=_text)
    gather: str = setting(AUTO, "how they sum gradients", names=lambda: f"auto, {known()}", metavar="NAME")
    launch_groups: int = setting(1, "groups of instances that start one after the other", metavar="N", rare=True)
    launch_delay: str = setting("0", "seconds between the groups' starts, or auto", metavar="T", rare=True, parse=_text)
    oversubscribe: bool = setting(False, "allow more instances than cores", rare=True)

    def __post_init__(self) -> None:
        check_fields(self, Instances)
        if self.n not in WORDS and not re.fullmatch(r"(x:)?[1-9]\d*", self.n, re.ASCII):
            raise ScaffeError(f"instances must be a number, numa, core, x:C such as x:4, or auto; got '{self.n}'")
        digits = self.n.removeprefix("x:")
        if digits.isdecimal() and (len(digits) > len(str(MOST)) or int(digits) > MOST):
            raise ScaffeError(f"instances must be {MOST} or fewer, and x:C have {MOST} cores or fewer; got '{self.n}'")
        if self.gather != AUTO:
            find_gather(self.gather)
        if self.launch_groups < 1:
            raise ScaffeError(f"launch_groups must be 1 or more, got {self.launch_groups}")
        if self.launch_delay != AUTO and not _is_seconds(self.launch_delay):
            raise ScaffeError(f"launch_delay must be seconds such as 0.005, or auto; got '{self.launch_delay}'")

    def make_gather(self, domains: list[int], lengths: list[int], deterministic: bool = False) -> Gather:
        """Return the gather, which is not "auto"; `domains` by instance, `lengths` of the buckets in elements."""
        return make_gather(self.gather, domains, lengths, deterministic)


def _is_seconds(text: str) -> bool:
    try:
        return 0 <= float(text) <= MOST_DELAY
    except (TypeError, ValueError):
        return False
