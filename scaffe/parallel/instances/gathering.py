"""Gathering: the instances of a rank, as a workflow gets them: nets, threads, and how gradients are summed."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.net import Net
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.drive import Hook
from scaffe.parallel.instances.drive import CrewDrive
from scaffe.parallel.instances.gathers.gather import find_gather
from scaffe.parallel.instances.gradient_sums import GradientSums
from scaffe.parallel.instances.submissions import Submissions
from scaffe.parallel.instances.team import Team
from scaffe.parallel.replica import Replica


class Gathering:
    """The nets of a team's instances, with the gather that sums their gradients into those of net 0.

    `gather` is its name, which is not "auto". With `deterministic` sums repeat bit for bit.
    """

    def __init__(self, team: Team, nets: Sequence[Net], gather: str, deterministic: bool):
        self.team, self.nets, self.gather, self.deterministic = team, nets, gather, deterministic

    def drive(self) -> Hook:
        """Return a drive by the team's threads."""
        assert self.team.crew is not None
        drive = CrewDrive(self.team.crew, self.team.records)
        self.team.breaks.append(drive.release)
        return drive

    def of(self, buckets: Sequence[Bucket], summed: Callable[[int], object]) -> Gathered:
        """Return the sums of these buckets; `summed(k)` is called once bucket k's is complete."""
        return Gathered(self, buckets, summed)


class Gathered:
    """The instances' gradients of one workflow, bucket by bucket, and the replicas that submit them."""

    def __init__(self, gathering: Gathering, buckets: Sequence[Bucket], summed: Callable[[int], object]):
        team, nets = gathering.team, gathering.nets
        kind, number = find_gather(gathering.gather)
        parts = [bucket.part for bucket in buckets]
        domains = [place.domain for place in team.places]
        gather = kind(domains, [part.stop - part.start for part in parts], number, gathering.deterministic)
        diffs = [net.packed.diff for net in nets]
        self.sums = GradientSums(gather, diffs, diffs[0], parts, summed, lambda: team.waiting())
        team.breaks.append(self.sums.break_off)
        self._submissions = [Submissions(i, net.packed, buckets, self.sums) for i, net in enumerate(nets)]
        self.replicas = [Replica(*one) for one in zip(nets, self._submissions, team.records, strict=True)]

    def begin(self) -> None:
        """Expect the gradients of all instances."""
        self.sums.begin()
        for submissions in self._submissions:
            submissions.begin()
