"""Links: the times of messages on a described cluster."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Sequence

from collectives.group import Group
from collectives.model.clusters import Cluster
from collectives.simulation.events import SAME, Message

Link = tuple[str, int]


class LinkNetwork:
    """A network on which a rank sends one message and receives one at a time, first come first served.

    Messages that share a node's adapters, or a supernode's uplinks, share their speed. A message's share is fixed when
    it starts, so a schedule in lockstep is timed exactly and any other one approximately.
    """

    def __init__(self, cluster: Cluster, group: Group, itemsize: int) -> None:
        """Begin with all links free; `itemsize` is the bytes of an element."""
        self._cluster, self._group, self._itemsize = cluster, group, itemsize
        self._sending = [0.0] * group.size  # busy until
        self._receiving = [0.0] * group.size
        self._carried: defaultdict[Link, list[float]] = defaultdict(list)  # the end times of the messages on each link
        self._speed: dict[str, float] = {"out": cluster.nics, "in": cluster.nics}
        out_of_supernode = (cluster.nodes_per_supernode or 1) * cluster.nics / cluster.oversubscription
        self._speed |= {"up": out_of_supernode, "down": out_of_supernode}

    def add(self, rank: int, elements: int) -> float:
        """Return the seconds of an addition."""
        return elements * self._itemsize * self._cluster.gamma

    def transfer(self, messages: Sequence[Message], now: float) -> list[tuple[float, Message]]:
        """Start the messages whose ranks are free; return the others with the time at which they may start."""
        started, waiting = self._take_ports(messages, now)
        paths = [self._path(message) for message in started]
        starting = Counter(link for path in paths for link in path)
        share = {
            link: (self._still_carried(link, now) + more) / self._speed[link[0]] for link, more in starting.items()
        }
        for message, path in zip(started, paths, strict=True):
            end = self._end(message, now, max((share[link] for link in path), default=None))
            self._sending[message.source] = self._receiving[message.dest] = message.done = end
            for link in path:
                heapq.heappush(self._carried[link], end)
        return [(max(self._sending[m.source], self._receiving[m.dest]), m) for m in waiting]

    def _take_ports(self, messages: Sequence[Message], now: float) -> tuple[list[Message], list[Message]]:
        """Return the messages that can start, and those with a busy end."""
        started: list[Message] = []
        waiting: list[Message] = []
        for message in messages:
            free = max(self._sending[message.source], self._receiving[message.dest]) <= now * SAME
            (started if free else waiting).append(message)
            if free:
                self._sending[message.source] = self._receiving[message.dest] = float("inf")
        return started, waiting

    def _path(self, message: Message) -> list[Link]:
        """Return the links that the message shares with others."""
        nodes, supernodes = self._group.nodes, self._group.supernodes
        here, there = nodes[message.source], nodes[message.dest]
        if here == there:
            return []
        path = [("out", here), ("in", there)]
        here, there = supernodes[message.source], supernodes[message.dest]
        return path if here == there else [*path, ("up", here), ("down", there)]

    def _still_carried(self, link: Link, now: float) -> int:
        """Return how many messages the link carries now."""
        ends = self._carried[link]
        while ends and ends[0] <= now * SAME:
            heapq.heappop(ends)
        return len(ends)

    def _end(self, message: Message, now: float, share: float | None) -> float:
        """Return the end time of the message; `share` is None inside a node."""
        size = message.elements * self._itemsize
        if share is None:
            return now + self._cluster.alpha_in + size * self._cluster.beta_in
        return now + self._cluster.alpha + size * self._cluster.beta * max(1.0, share)
