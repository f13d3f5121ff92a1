"""InstanceNets: the nets of a rank's instances, with their threads and the gather of their gradients."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket
from scaffe.parallel.drive import Hook
from scaffe.parallel.instances.drive import CrewDrive
from scaffe.parallel.instances.gathers.gather import make_gather
from scaffe.parallel.instances.gradient_sums import GradientSums
from scaffe.parallel.instances.submissions import Submissions
from scaffe.parallel.instances.team import Team
from scaffe.parallel.instances.weight_copy import WeightCopy
from scaffe.parallel.replica import Replica, Weights


class InstanceNets:
    """The nets of a team's instances, with the gather that sums their gradients into those of net 0.

    `gather` is its name, which is not "auto". With `deterministic` sums repeat bit for bit.
    """

    def __init__(self, team: Team, nets: Sequence[Net], gather: str, deterministic: bool):
        self.team, self.nets, self.gather, self.deterministic = team, nets, gather, deterministic

    def crowding(self) -> str:
        """Return a warning if an instance has more threads than cores; else ""."""
        for net, place in zip(self.nets, self.team.places, strict=True):
            threads, cores = net.context.compute.threads, len(place.cores)
            if threads > cores:
                return (
                    f"instance {place.instance} has {threads} threads on {cores} core(s): they wait for each other; "
                    "give each instance fewer with --threads, or leave it out"
                )
        return ""

    def drive(self) -> Hook:
        """Return a drive by the team's threads."""
        assert self.team.crew is not None
        drive = CrewDrive(self.team.crew, self.team.main, self.team.records)
        self.team.breaks.append(drive.release)
        return drive

    def of(self, buckets: Sequence[Bucket], summed: Callable[[int], object]) -> InstanceSums:
        """Return the sums of these buckets; `summed(k)` is called once bucket k's is complete."""
        return InstanceSums(self, buckets, summed)


class InstanceSums:
    """The instances' gradients of one workflow, bucket by bucket, and the replicas that submit them."""

    def __init__(self, given: InstanceNets, buckets: Sequence[Bucket], summed: Callable[[int], object]):
        team, nets = given.team, given.nets
        parts = [bucket.part for bucket in buckets]
        domains = [place.domain for place in team.places]
        lengths = [part.stop - part.start for part in parts]
        gather = make_gather(given.gather, domains, lengths, given.deterministic)
        diffs = [net.packed.diff for net in nets]
        self.sums = GradientSums(gather, diffs, parts, summed, lambda: team.waiting())
        team.breaks.append(self.sums.break_off)
        self._submissions = [Submissions(i, net.packed, buckets, self.sums) for i, net in enumerate(nets)]
        weights = _weights(nets, domains, buckets)
        self.replicas = [Replica(*one) for one in zip(nets, self._submissions, team.records, weights, strict=True)]

    def begin(self) -> None:
        """Expect the gradients of all instances."""
        self.sums.begin()
        for submissions in self._submissions:
            submissions.begin()


def _weights(nets: Sequence[Net], domains: Sequence[int], buckets: Sequence[Bucket]) -> list[Weights]:
    """Return each net's weights: those of net 0 in its NUMA domain, a copy of them in each other domain."""
    found: dict[int, Weights] = {domains[0]: Weights()}
    for net, domain in zip(nets, domains, strict=True):
        if domain not in found:
            found[domain] = WeightCopy(nets[0].packed.data, net.packed.data, buckets, net.packed.changed)
    return [found[domain] for domain in domains]
