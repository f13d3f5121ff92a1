"""Group: the node and the supernode of each rank, and the orders of ranks that follow."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise, zip_longest
from typing import TYPE_CHECKING, cast

import numpy as np

from collectives.errors import AlgorithmError, ArgumentError

if TYPE_CHECKING:
    from mpi4py import MPI


@dataclass(frozen=True)
class Group:
    """The node and the supernode of each rank, both numbered in order of first appearance.

    `nodes` and `supernodes` have one number for each rank. Schedules number ranks by it: see `order` and `round_robin`.
    """

    nodes: tuple[int, ...]
    supernodes: tuple[int, ...]

    @classmethod
    def of(cls, nodes: Sequence[Hashable], supernodes: Sequence[Hashable] | None = None) -> Group:
        """Return the group of ranks on `nodes`, one name for each rank; without `supernodes` there is one supernode."""
        return cls(_numbered(nodes), _numbered(supernodes if supernodes is not None else [0] * len(nodes)))

    @classmethod
    def uniform(cls, size: int, ranks_per_node: int = 1, nodes_per_supernode: int | None = None) -> Group:
        """Return `size` ranks that fill node after node, and supernode after supernode.

        Raise AlgorithmError for a number below 1.
        """
        if min(size, ranks_per_node, nodes_per_supernode or 1) < 1:
            raise AlgorithmError("a group needs at least one rank, one rank a node and one node a supernode")
        nodes = tuple(rank // ranks_per_node for rank in range(size))
        return cls(nodes, tuple(node // (nodes_per_supernode or size) for node in nodes))

    @classmethod
    def from_comm(cls, comm: MPI.Intracomm) -> Group:
        """Return the group of the ranks of `comm`. Ranks that can share memory are on one node. Collective."""
        from mpi4py import MPI

        with_me = comm.Split_type(MPI.COMM_TYPE_SHARED, key=comm.rank)
        found = cls.from_node(comm, cast("MPI.Intracomm", with_me))
        with_me.Free()
        return found

    @classmethod
    def from_node(cls, comm: MPI.Intracomm, with_me: MPI.Intracomm) -> Group:
        """Return the group of the ranks of `comm`; `with_me` has those of this rank's node in their order. Collective.

        Where the ranks of each node follow each other, a bit a rank is enough: whether it is its node's first. Else
        each rank tells its node's first, in 4 bytes.
        """
        from mpi4py import MPI

        leader = with_me.bcast(comm.rank)
        bits = np.zeros(comm.size + 1, np.bool_)
        bits[comm.rank], bits[-1] = comm.rank == leader, comm.rank - leader != with_me.rank
        every = np.packbits(bits)
        comm.Allreduce(MPI.IN_PLACE, every, MPI.BOR)
        bits = np.unpackbits(every, count=comm.size + 1).astype(np.bool_)
        if not bits[-1]:
            return cls.of((np.cumsum(bits[:-1]) - 1).tolist())
        leaders = np.empty(comm.size, np.int32)
        comm.Allgather(np.array([leader], np.int32), leaders)
        return cls.of(leaders.tolist())

    def with_supernodes(self, names: Sequence[Hashable]) -> Group:
        """Return the same nodes in the supernodes `names`, one name for each rank.

        Raise ArgumentError where two ranks of a node have different names.
        """
        first: dict[int, int] = {}  # rank of each node
        for rank, node in enumerate(self.nodes):
            one = first.setdefault(node, rank)
            if names[one] != names[rank]:
                both = f"'{names[one]}' and '{names[rank]}'"
                raise ArgumentError(
                    f"supernodes: ranks {one} and {rank} share a node, but are in two supernodes: {both}"
                )
        return Group.of(self.nodes, names)

    def of_nodes(self) -> Group:
        """Return the group with one rank for each node."""
        supernodes = dict(zip(self.nodes, self.supernodes, strict=True))
        return Group.of(sorted(supernodes), [supernodes[node] for node in sorted(supernodes)])

    @property
    def size(self) -> int:
        """Return the number of ranks."""
        return len(self.nodes)

    @property
    def shape(self) -> tuple[int, int]:
        """Return the number of nodes and the number of ranks on each node, 0 where these differ."""
        ranks = Counter(self.nodes)
        return len(ranks), ranks[0] if len(set(ranks.values())) == 1 else 0

    def members(self, rank: int) -> list[int]:
        """Return the ranks on the node of `rank`, ascending."""
        return [one for one, node in enumerate(self.nodes) if node == self.nodes[rank]]

    @property
    def firsts(self) -> list[int]:
        """Return the first rank of each node, by node."""
        found: dict[int, int] = {}
        for rank, node in enumerate(self.nodes):
            found.setdefault(node, rank)
        return list(found.values())

    def order(self, root: int = 0) -> list[int]:
        """Return all ranks in a circle from `root`: the rest of its node, then of its supernode, then the others.

        Neighbours in the order are neighbours on the machine for every root: a chain enters and leaves each node once.
        Raise AlgorithmError for a root that is not a rank.
        """
        if not 0 <= root < self.size:
            raise AlgorithmError(f"root {root} is not one of {self.size} ranks")
        own, above, n = self.nodes[root], self.supernodes[root], self.size
        return sorted(
            range(n),
            key=lambda r: ((self.supernodes[r] - above) % n, (self.nodes[r] - own) % n, (r - root) % n),
        )

    def round_robin(self) -> list[int]:
        """Return the ranks taken from the supernodes in turn: with S supernodes, virtual ranks 0, S, 2S, ... share one.

        Over this order recursive halving crosses supernodes in its last rounds, which send least (swCaffe, section
        V.A).
        """
        hands: dict[int, list[int]] = {}
        for rank in self.order():
            hands.setdefault(self.supernodes[rank], []).append(rank)
        return [rank for hand in zip_longest(*hands.values()) for rank in hand if rank is not None]


def _numbered(names: Iterable[Hashable]) -> tuple[int, ...]:
    """Return the number of each name, in order of first appearance."""
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(name, len(numbers)) for name in names)


def among(comm: MPI.Intracomm, ranks: Sequence[int]) -> MPI.Intracomm:
    """Return the communicator of these ranks of `comm`, in this order; each of them knows them. Collective over them.

    MPI_Comm_split would tell all ranks of `comm` what each wants.
    """
    group = comm.group
    chosen = group.Incl(ranks)
    made = comm.Create_group(chosen)
    group.Free()
    chosen.Free()
    return made


def from_firsts(comm: MPI.Intracomm, group: Group, mine: bytes) -> list[bytes]:
    """Return what the first rank of each node brings, by node, on all ranks of `comm`. Collective.

    The first ranks exchange it, and each tells its node: so no rank but these hears from another node.
    """
    node, found = among(comm, group.members(comm.rank)), None
    if node.rank == 0:
        firsts = among(comm, group.firsts)
        lengths = np.empty(firsts.size, np.int32)
        firsts.Allgather(np.array([len(mine)], np.int32), lengths)
        every = np.empty(lengths.sum(), np.uint8)
        firsts.Allgatherv(np.frombuffer(mine, np.uint8), [every, lengths])
        firsts.Free()
        found = lengths.tolist(), every.tobytes()
    told, text = node.bcast(found)
    node.Free()
    stops = [0, *accumulate(told)]
    return [text[start:stop] for start, stop in pairwise(stops)]
