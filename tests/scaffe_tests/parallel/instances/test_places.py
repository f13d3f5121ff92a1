from __future__ import annotations

import pytest

from scaffe.errors import ScaffeError
from scaffe.parallel.instances.places import candidates, place, rank_cores
from scaffe.parallel.instances.topology import Domain, Topology

pytestmark = pytest.mark.mpi_skip


def topology(*cores: range | list[int]) -> Topology:
    """Return domains 0, 1, ... with these cores."""
    return Topology(tuple(Domain(i, tuple(each)) for i, each in enumerate(cores)))


TWO = topology(range(0, 4), range(4, 8))
FOUR = topology([0, 1], [2, 3], [4, 5], [6, 7])
UNEVEN = topology([0], [1, 2, 3, 4, 5, 6, 7])


def placed(n: str, over: Topology, oversubscribe: bool = False) -> list[tuple[int, tuple[int, ...]]]:
    """Return domain and cores of each instance."""
    found = place(n, over, oversubscribe)
    assert [one.instance for one in found] == list(range(len(found)))
    return [(one.domain, one.cores) for one in found]


@pytest.mark.parametrize(
    ("n", "over", "expected"),
    [
        ("1", TWO, [(0, (0, 1, 2, 3, 4, 5, 6, 7))]),
        ("numa", TWO, [(0, (0, 1, 2, 3)), (1, (4, 5, 6, 7))]),
        ("2", TWO, [(0, (0, 1, 2, 3)), (1, (4, 5, 6, 7))]),
        ("3", TWO, [(0, (0, 1)), (0, (2, 3)), (1, (4, 5, 6, 7))]),
        ("x:2", TWO, [(0, (0, 1)), (0, (2, 3)), (1, (4, 5)), (1, (6, 7))]),
        ("x:3", TWO, [(0, (0, 1, 2)), (1, (4, 5, 6))]),  # cores 3 and 7 stay idle
        ("core", topology([0, 1], [2]), [(0, (0,)), (0, (1,)), (1, (2,))]),
        ("2", FOUR, [(0, (0, 1, 2, 3)), (2, (4, 5, 6, 7))]),
        ("3", FOUR, [(0, (0, 1)), (1, (2, 3)), (2, (4, 5, 6, 7))]),
        ("1", UNEVEN, [(1, (0, 1, 2, 3, 4, 5, 6, 7))]),  # most of its cores are in domain 1
        ("2", UNEVEN, [(0, (0,)), (1, (1, 2, 3, 4, 5, 6, 7))]),
        ("4", UNEVEN, [(0, (0,)), (1, (1, 2)), (1, (3, 4)), (1, (5, 6, 7))]),
    ],
)
def test_places(n: str, over: Topology, expected: list[tuple[int, tuple[int, ...]]]) -> None:
    assert placed(n, over) == expected


@pytest.mark.parametrize("n", range(1, 9))
@pytest.mark.parametrize("over", [TWO, FOUR, UNEVEN], ids=["two", "four", "uneven"])
def test_each_core_has_one_instance_and_no_instance_lies_in_two_domains_without_need(n: int, over: Topology) -> None:
    found = placed(str(n), over)
    assert len(found) == n
    assert sorted(core for _, cores in found for core in cores) == sorted(over.cores)
    if n >= len(over.domains):
        assert all({over.domain_of(core) for core in cores} == {domain} for domain, cores in found)


def test_more_instances_than_cores_share_them_if_asked() -> None:
    assert placed("4", topology([0, 1]), True) == [(0, (0,)), (0, (0,)), (0, (1,)), (0, (1,))]
    assert placed("5", topology([0], [1]), True) == [(0, (0,)), (0, (0,)), (0, (0,)), (1, (1,)), (1, (1,))]
    assert placed("x:4", topology([0], [1]), True) == [(0, (0, 1))]


@pytest.mark.parametrize(
    ("n", "over", "error"),
    [
        (
            "9",
            TWO,
            "9 instances need 9 cores, and this rank has 8 (cores 0-7); ask for at most 8, or share cores with "
            "--oversubscribe",
        ),
        ("x:4", UNEVEN.only([0, 1, 2, 3]), "an instance on each 4 cores needs a domain with 4; this rank has 3 in one"),
    ],
)
def test_more_than_the_cores_is_an_error(n: str, over: Topology, error: str) -> None:
    with pytest.raises(ScaffeError) as caught:
        place(n, over)
    assert str(caught.value) == error


def test_ranks_of_a_node_divide_its_cores_first() -> None:
    unbound = [range(8)] * 2
    assert [rank_cores(unbound, rank, TWO) for rank in (0, 1)] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert [rank_cores([range(8)] * 3, rank, TWO) for rank in range(3)] == [(0, 1), (2, 3), (4, 5, 6, 7)]
    interleaved = topology([0, 2, 4, 6], [1, 3, 5, 7])  # numbered in turns: still a domain each
    assert [rank_cores(unbound, rank, interleaved) for rank in (0, 1)] == [(0, 2, 4, 6), (1, 3, 5, 7)]


def test_ranks_that_mpirun_has_bound_keep_their_cores() -> None:
    assert [rank_cores([[0, 1], [6, 7]], rank, TWO) for rank in (0, 1)] == [(0, 1), (6, 7)]
    pairs = [[0, 1], [0, 1], [6, 7], [6, 7]]
    assert [rank_cores(pairs, rank, TWO) for rank in range(4)] == [(0,), (1,), (6,), (7,)]


def test_more_ranks_than_cores_share_them() -> None:
    assert [rank_cores([[0, 1]] * 4, rank, TWO) for rank in range(4)] == [(0,), (0,), (1,), (1,)]


def test_how_a_place_reads() -> None:
    assert [str(one) for one in place("2", topology(range(0, 56, 2), [1]))] == [
        f"instance 0: domain 0, cores {','.join(map(str, range(0, 56, 2)))}",
        "instance 1: domain 1, core 1",
    ]


def test_what_auto_tries() -> None:
    assert candidates(TWO) == {"1": 1, "numa": 2, "core": 8}
    assert candidates(topology([0, 1])) == {"1": 1, "numa": 1, "core": 2}
    assert candidates(topology([3])) == {"1": 1, "numa": 1, "core": 1}
