"""Tree: partial sums go up a tree of instances (NUMA-Caffe, section 4.2)."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.parallel.instances.gathers.gather import Addition, Gather, register


class TreeGather(Gather):
    """Each instance adds its children's partial sums to its own gradients; the root's are the sums.

    The instances of a domain form a tree of arity k whose root is the first of them; these roots form another, so that
    each domain but the first sends one partial sum. An inner instance's buffer holds its partial sum afterwards.

    The last of a parent and its children to arrive does the parent's addition, so that no thread waits. The order of
    adding is fixed: the parent's gradients, then those of its children by number.

    Passes over the buffer: a read of each instance's gradients, a write of each parent's sum, and a read of each
    parent's but the root's: with p parents n + 2 p - 1.
    """

    name = "tree"
    number_by_default = 2

    def prepare(self) -> None:
        """Make the tree."""
        self.parents = parents(self.domains, self.number)
        self.children = [[c for c in range(self.size) if self.parents[c] == i] for i in range(self.size)]

    def reset(self) -> None:
        """Expect each instance's gradients, and its children's partial sums."""
        self._missing = [[1 + len(children) for children in self.children] for _ in self.lengths]

    def given(self, instance: int, bucket: int) -> list[Addition]:
        """Return the instance's addition if its children's partial sums are complete, or else its parent's, or none."""
        return self._arrive(instance, bucket)

    def added(self, addition: Addition) -> list[Addition]:
        """Return the addition of the parent, if this partial sum was its last."""
        return self._leave(addition.sources[0], addition.bucket)

    def _arrive(self, node: int, bucket: int) -> list[Addition]:
        """Count one arrival at a node: its own gradients or a child's partial sum."""
        self._missing[bucket][node] -= 1
        if self._missing[bucket][node]:
            return []
        root = self.parents[node] < 0
        if not self.children[node] and not root:
            return self._leave(node, bucket)
        return [Addition(bucket, 0, self.lengths[bucket], (node, *self.children[node]))]

    def _leave(self, node: int, bucket: int) -> list[Addition]:
        """Pass a node's partial sum to its parent."""
        if self.parents[node] < 0:
            self.complete[bucket] = True
            return []
        return self._arrive(self.parents[node], bucket)


def parents(domains: Sequence[int], arity: int) -> list[int]:
    """Return each instance's parent, -1 for the root, which is instance 0. `domains` holds each instance's domain."""
    found = [-1] * len(domains)
    firsts: dict[int, int] = {}  # instance by domain
    for instance, domain in enumerate(domains):
        firsts.setdefault(domain, instance)
    for domain in firsts:
        _link([i for i, other in enumerate(domains) if other == domain], arity, found)
    _link(list(firsts.values()), arity, found)
    return found


def _link(members: Sequence[int], arity: int, found: list[int]) -> None:
    """Make a tree of the members; the first is its root."""
    for place in range(1, len(members)):
        found[members[place]] = members[(place - 1) // arity]


register(TreeGather)
