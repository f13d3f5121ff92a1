"""Times of a single tree, all chunks of a rank at once: the same times as a simulation, computed directly.

Where a tree loads no shared link beyond its speed, ranks delay each other only along the tree. A rank's messages, and
its additions, are queues served in a known order: job i ends at the maximum over j <= i of ready_j plus the service of
jobs j to i, a cumulative sum and a cumulative maximum. From the leaves to the root, or for a broadcast from the root to
the leaves, a few NumPy calls process a rank. 100,000 ranks take seconds. It assumes that receives are posted, and sends
finished, before anything waits for the executor's limits.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from collectives.group import Group
from collectives.model.clusters import Cluster
from collectives.schedules.tree_steps import TreeSteps

Times = NDArray[np.float64]


def crowded(plan: TreeSteps, cluster: Cluster, group: Group) -> bool:
    """Return whether more ranks use a shared link, in one direction, than it serves at full speed."""
    tree, order = plan.trees[0], np.array(plan.order)
    children, parents = order[1:], order[[tree.parent(v) or 0 for v in range(1, tree.size)]]
    across = (cluster.nodes_per_supernode or 1) * cluster.nics / cluster.oversubscription
    for places, most in ((np.array(group.nodes), cluster.nics), (np.array(group.supernodes), across)):
        outside = places[children] != places[parents]
        for ranks in (children[outside], parents[outside]):
            if np.bincount(places[np.unique(ranks)]).max(initial=0) > most:
                return True
    return False


class TreeTimes:
    """The arrival times of chunks along one tree whose ranks delay each other only at their ports."""

    def __init__(self, plan: TreeSteps, cluster: Cluster, group: Group, itemsize: int) -> None:
        """Compute the service times; `itemsize` is the bytes of an element."""
        self._plan, self._cluster, self._group = plan, cluster, group
        n = np.array([stop - start for start, stop in plan.slices(0)], float) * itemsize
        self._bytes = n
        self._add_one = Service(n * cluster.gamma)
        self._within, self._across = (
            Service(alpha + n * beta)
            for alpha, beta in ((cluster.alpha_in, cluster.beta_in), (cluster.alpha, cluster.beta))
        )

    def finish(self) -> float:
        """Return the seconds after which the last rank has finished."""
        if len(self._plan.order) == 1 or not len(self._bytes):
            return 0.0
        at_root = np.zeros(len(self._bytes))
        if self._plan.up:
            at_root = self._gather()
        if self._plan.down:
            return self._spread(np.full(len(self._bytes), at_root[-1] if self._plan.up else 0.0))
        return float(at_root[-1])

    def _gather(self) -> Times:
        """Return when the root has the sum of each chunk, from the leaves up: children have higher numbers."""
        tree = self._plan.trees[0]
        summed: dict[int, Times] = {}
        for v in reversed(range(tree.size)):
            children = tree.children(v)
            summed[v] = self._add([summed.pop(child) for child in children], v, children)
        return summed[0]

    def _add(self, sent: Sequence[Times], v: int, children: Sequence[int]) -> Times:
        """Return when v has added each chunk of all children, which sent them at the times `sent`."""
        if not children:
            return np.zeros(len(self._bytes))
        if len(children) == 1:
            return self._add_one.ends(self._transfer(v, children[0]).ends(sent[0]))
        arrived = self._receive(np.stack(sent, axis=1).ravel(), self._transfers(v, children))
        adds = Service(np.repeat(self._add_one.each, len(children)))
        return adds.ends(arrived)[len(children) - 1 :: len(children)]

    def _receive(self, ready: Times, service: Times) -> Times:
        """Return when messages have passed a rank's port, first come first served, chunk by chunk."""
        by_time = np.argsort(ready, kind="stable")
        arrived = np.empty_like(ready)
        arrived[by_time] = Service(service[by_time]).ends(ready[by_time])
        return arrived

    def _spread(self, at_root: Times) -> float:
        """Return when the last chunk has reached the last rank, from the root down."""
        tree, had, last = self._plan.trees[0], {0: at_root}, 0.0
        for v in range(tree.size):
            children = tree.children(v)[::-1]
            have = had.pop(v)
            if len(children) == 1:
                had[children[0]] = self._transfer(v, children[0]).ends(have)
            elif children:
                sent = Service(self._transfers(v, children)).ends(np.repeat(have, len(children)))
                had |= {child: sent[i :: len(children)] for i, child in enumerate(children)}
            last = max(last, float(have[-1]))
        return last

    def _transfer(self, u: int, v: int) -> Service:
        """Return the service of the chunks between virtual ranks u and v."""
        nodes, order = self._group.nodes, self._plan.order
        return self._within if nodes[order[u]] == nodes[order[v]] else self._across

    def _transfers(self, v: int, others: Sequence[int]) -> Times:
        """Return the seconds of each chunk between v and each of several others, chunk by chunk."""
        return np.stack([self._transfer(v, other).each for other in others], axis=1).ravel()


class Service:
    """A queue's jobs, served one by one in the given order, each taking its time in `each`, in seconds."""

    def __init__(self, each: Times) -> None:
        self.each = each
        self._end = np.cumsum(each)
        self._start = self._end - each

    def ends(self, ready: Times) -> Times:
        """Return the end times of jobs that are ready at the times `ready`."""
        return self._end + np.maximum.accumulate(ready - self._start)
