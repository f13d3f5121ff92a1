"""Wrong arguments, of any Python type, are one error on all ranks, and the communicator goes on.

Each row is tried on all ranks and on the last one alone, in calls whose shape is new; on all ranks also where the plan
is known. A mistake of one rank in a known call ends the job: see tests/jobs_tests/test_wrong_arrays.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, CollectiveError, Communicator, DisagreementError, Group, Staged

pytestmark = pytest.mark.mpi
COMM = MPI.COMM_WORLD
LENGTH = 1000


class Hostile:
    """An object that raises whatever it is asked."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(f"no {name}\nhere")

    __hash__ = __eq__ = __bool__ = __len__ = lambda self, *other: self.nothing  # type: ignore[assignment]


def ones(dtype: Any = "f4") -> np.ndarray:
    return np.ones(LENGTH, dtype)


def frozen() -> np.ndarray:
    array = ones()
    array.flags.writeable = False
    return array


def overlapping(by: int) -> dict[str, np.ndarray]:
    """Return a result that begins so many elements behind the contribution, or before it."""
    memory = np.ones(LENGTH + abs(by), np.float32)
    return {"send": memory[max(-by, 0) :][:LENGTH], "recv": memory[max(by, 0) :][:LENGTH]}


ARGUMENTS: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("op", lambda: {"op": MPI.REPLACE}, "unknown operation of MPI, which has none of ours; known operations: sum max"),
    ("op", lambda: {"op": "band"}, "there is no band of float32; operations for it: sum max min mean prod"),
    ("op", lambda: {"op": ["sum"]}, "unknown operation list"),
    ("op", lambda: {"op": None}, "unknown operation NoneType"),
    ("op", lambda: {"op": np.ones(3)}, "unknown operation ndarray"),
    ("op", lambda: {"op": Hostile()}, "unknown operation Hostile"),
    ("op", lambda: {"op": "xor"}, "unknown operation 'xor'"),
    ("root", lambda: {"root": "0"}, "root must be a whole number, got '0'"),
    ("root", lambda: {"root": None}, "root must be a whole number, got None"),
    ("root", lambda: {"root": 0.5}, "root must be a whole number, got 0.5"),
    ("root", lambda: {"root": np.zeros(2, int)}, "root must be a whole number, got ndarray"),
    ("root", lambda: {"root": -1}, "root -1 is not one of"),
    ("root", lambda: {"root": 10**30}, "root 1000000000000000000000000000000 is not one of"),
    ("algorithm", lambda: {"algorithm": 7}, "algorithm must be a name, got 7"),
    ("algorithm", lambda: {"algorithm": None}, "algorithm must be a name, got None"),
    ("algorithm", lambda: {"algorithm": {"chain"}}, "algorithm must be a name, got set"),
    ("algorithm", lambda: {"algorithm": "magic"}, "unknown algorithm 'magic'; known are"),
    ("tree", lambda: {"algorithm": "cb-" + "9" * 5000}, "algorithm 'cb-9*': a number of 5000 digits; expected 9"),
    ("tree", lambda: {"algorithm": "cb-999999999999"}, "'cb-999999999999': a number of 12 digits; expected 9 at"),
    ("tree", lambda: {"algorithm": "cb", "chain_size": 0}, "chain_size is 0; it must be at least 1"),
    ("tree", lambda: {"algorithm": "cb", "chain_size": "8"}, "chain_size must be a whole number, got '8'"),
    ("chunk_bytes", lambda: {"chunk_bytes": -1}, "chunk_bytes is -1; it must be at least 0"),
    ("chunk_bytes", lambda: {"chunk_bytes": "4K"}, "chunk_bytes must be a whole number, got '4K'"),
    ("chunk_bytes", lambda: {"chunk_bytes": [64]}, "chunk_bytes must be a whole number, got list"),
    ("check", lambda: {"check": np.ones(2)}, "ValueError: The truth value of an array"),
    ("send", lambda: {"send": None}, "send must be a numpy array, got NoneType"),
    ("send", lambda: {"send": [1.0] * LENGTH}, "send must be a numpy array, got list"),
    ("send", lambda: {"send": Hostile()}, "send must be a numpy array, got Hostile|RuntimeError: no __cuda"),
    ("send", lambda: {"send": np.float32(1)}, "send must be a numpy array, got float32"),
    ("send", lambda: {"send": np.ma.masked_equal(ones(), 1)}, "send must be a numpy array, got MaskedArray"),
    ("send", lambda: {"send": ones(object)}, "elements of object, Python objects, which can't be sent"),
    ("send", lambda: {"send": ones([("a", "O")])}, "Python objects, which can't be sent"),
    ("send", lambda: {"send": np.ones((LENGTH, 2), "f4")[:, 0]}, "send must be contiguous"),
    ("send", lambda: {"send": np.broadcast_to(np.float32(1), LENGTH)}, "send must be contiguous"),
    ("sum", lambda: {"send": ones(bool)}, "there is no sum of bool; operations for it: max min land lor"),
    ("sum", lambda: {"send": ones(complex), "op": "max"}, "there is no max of complex128; operations for it: sum mean"),
    ("sum", lambda: {"send": ones(">f4")}, "arrays of >f4 can't be reduced"),
    ("sum", lambda: {"send": ones("M8[s]")}, r"arrays of datetime64\[s\] can't be reduced"),
    ("recv", lambda: {"recv": frozen()}, "recv is read-only, but the result goes there"),
    ("recv", lambda: {"recv": "here"}, "recv must be a numpy array, got str"),
    ("recv", lambda: {"recv": ones("f8")}, "recv has 1000 of float64, send 1000 of float32"),
    ("recv", lambda: {"recv": ones()[1:]}, "recv has 999 elements; expected 1000"),
    ("recv", lambda: overlapping(1), "send and recv overlap in memory"),
    ("recv", lambda: overlapping(LENGTH - 1), "send and recv overlap in memory"),
    ("recv", lambda: overlapping(-1), "recv and send overlap in memory"),
]
BLOCKS: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("counts", lambda: {"counts": [LENGTH]}, "counts has 1 numbers, for [2-9] ranks|expected"),
    ("counts", lambda: {"counts": [0] * COMM.size}, "send has 1000 elements; expected 0"),
    ("counts", lambda: {"counts": [LENGTH + 1] + [0] * (COMM.size - 1)}, "send has 1000 elements; expected 1001"),
    ("counts", lambda: {"counts": [-1] * COMM.size}, r"counts\[0\] is -1; it must be at least 0"),
    ("counts", lambda: {"counts": ["1"] * COMM.size}, r"counts\[0\] must be a whole number, got '1'"),
    ("counts", lambda: {"counts": [0.5] * COMM.size}, r"counts\[0\] must be a whole number, got 0.5"),
    ("counts", lambda: {"counts": 5}, "counts must be a list of . numbers, got 5"),
    ("counts", lambda: {"counts": "many"}, "counts must be a list of . numbers, got 'many'"),
    ("counts", lambda: {"counts": Hostile()}, "counts must be a list of . numbers, got Hostile"),
    ("counts", lambda: {"counts": {}}, "counts must be a list of . numbers, got dict"),
    ("counts", lambda: {"counts": (n for n in "ab")}, "counts must be a list of . numbers, got generator"),
    ("block", lambda: {"recv": ones()}, "recv has 1000 elements; expected"),
    ("block", lambda: {"recv": np.ones(3, "f4")}, "recv has 3 elements; expected"),
    ("block", lambda: {"recv": frozen()[: LENGTH // COMM.size]}, "recv is read-only, but the result goes there"),
    ("block", lambda: {"recv": ones("f8")}, "recv has 1000 of float64, send 1000 of float32"),
    ("block", lambda: {"recv": [1.0]}, "recv must be a numpy array, got list"),
    ("block", lambda: {"recv": Hostile()}, "no __|got Hostile"),
    ("whole", lambda: {"send": ones()[:3], "recv": ones()}, "send has 3 elements; expected"),
    ("whole", lambda: {"send": ones(), "recv": ones()}, "send has 1000 elements; expected"),
    ("whole", lambda: {"send": ones("f8")[:3], "recv": ones()}, "recv has 1000 of float32, send 3 of float64"),
    ("whole", lambda: {"send": frozen()}, "recv is read-only, but the result goes there"),
]
VERBS = {
    "reduce": {"op", "root", "algorithm", "tree", "chunk_bytes", "check", "send", "sum", "recv"},
    "allreduce": {"op", "algorithm", "tree", "chunk_bytes", "check", "send", "sum", "recv"},
    "bcast": {"root", "algorithm", "tree", "chunk_bytes", "check", "send"},
    "reduce_scatter": {"op", "algorithm", "chunk_bytes", "check", "send", "sum", "counts", "block"},
    "allgather": {"algorithm", "chunk_bytes", "check", "send", "counts", "whole"},
}
ROWS = [(what, kind, make, said) for kind, make, said in ARGUMENTS + BLOCKS for what in VERBS if kind in VERBS[what]]


def call(comm: Communicator, what: str, **given: Any) -> None:
    """Call a collective; the root of a reduce is the last rank, which gets the result."""
    given = {"send": ones(), **({"root": comm.size - 1} if "root" in VERBS[what] else {})} | given
    getattr(comm, what)(given.pop("send"), **given)


def works(comm: Communicator) -> None:
    """All ranks sum, by a plan that is known: what they had sent before would show."""
    array = ones()
    comm.allreduce(array)
    assert (array == comm.size).all()


@pytest.mark.parametrize("known", [False, True], ids=["new", "known"])
def test_a_mistake_of_all_ranks_is_an_error_on_all_of_them(comm, known):
    over = comm.dup()
    for what, kind, make, said in ROWS:
        if known and (what, kind) == ("reduce", "recv"):  # only the root's recv counts
            continue
        if known:
            call(over, what)
        with pytest.raises(CollectiveError, match=said) as error:
            call(over, what, **make())
        assert "\n" not in str(error.value) and (what != "allreduce" or not str(error.value).startswith("rank"))
        if known:
            works(over)
    over.free()


@pytest.mark.mpi(min_size=2)
def test_a_mistake_of_one_rank_in_a_new_call_is_an_error_on_all(comm):
    last, over = comm.size - 1, comm.dup()
    for what, _, make, said in ROWS:
        given = make() if comm.rank == last else {}
        with pytest.raises(CollectiveError, match=f"rank {last}: (.*{said}|{said})"):
            call(over, what, **given)
    works(over)
    over.free()


def memory(*parts: slice) -> list[np.ndarray]:
    """Return parts of one array."""
    whole = np.ones(LENGTH, np.float32)
    return [whole[part] for part in parts]


RIGHT: dict[str, Callable[..., Any]] = {
    "Communicator": lambda c, **given: Communicator(**{"comm": COMM} | given),
    "empty": lambda c, **given: c.empty(**{"shape": 4} | given),
    "give_back": lambda c, **given: c.give_back(*given.values()),
    "has_room": lambda c, **given: c.has_room(**{"nbytes": 4} | given),
    "explain": lambda c, **given: c.explain(**{"what": "reduce", "nbytes": 4} | given),
    "plan": lambda c, **given: c.plan(**{"what": "bcast", "send": ones()} | given),
    "Staged": lambda c, **given: Staged(c, **{"what": "allreduce", "arrays": [ones()]} | given),
    "alltoall": lambda c, **given: c.alltoall(**{"send": np.ones(COMM.size * 4, "f4")} | given),
    "gather": lambda c, **given: c.gather(**{"send": ones(), "recv": np.ones(COMM.size * LENGTH, "f4")} | given),
    "scatter": lambda c, **given: c.scatter(**{"send": np.ones(COMM.size * LENGTH, "f4"), "recv": ones()} | given),
    "iallreduce": lambda c, **given: c.iallreduce(**{"send": ones()} | given),
    "objects.bcast": lambda c, **given: c.objects.bcast(**{"value": 1} | given),
    "objects.gather": lambda c, **given: c.objects.gather(**{"value": 1} | given),
    "objects.alltoall": lambda c, **given: c.objects.alltoall(**{"values": [1] * COMM.size} | given),
}
OTHERS: list[tuple[str, Callable[[], dict[str, Any]], str]] = [
    ("Communicator", lambda: {"comm": None}, "comm must be an MPI intracommunicator, .* got NoneType"),
    ("Communicator", lambda: {"comm": MPI.COMM_NULL}, "comm must be an MPI intracommunicator, .* got MPI.COMM_NULL"),
    ("Communicator", lambda: {"group": Group.uniform(COMM.size + 1)}, "group has the nodes of . ranks"),
    ("Communicator", lambda: {"group": Group((0,) * COMM.size, ())}, "supernodes of 0, the communicator has"),
    ("Communicator", lambda: {"group": Group((5,) * COMM.size, (0,) * COMM.size)}, "make it by Group.of"),
    ("Communicator", lambda: {"group": [0] * COMM.size}, "group must be a Group, got list"),
    ("Communicator", lambda: {"table": "table.json"}, "table must be a Table, got 'table.json'"),
    ("Communicator", lambda: {"node": 3}, "node must be a NodeComm, got 3"),
    ("Communicator", lambda: {"supernodes": 7}, "TypeError: 'int' object is not iterable"),
    ("Communicator", lambda: {"progress": "often"}, "progress must be caller or thread, got 'often'"),
    ("Communicator", lambda: {"progress": None}, "progress must be caller or thread, got None"),
    ("alltoall", lambda: {"send": np.ones(COMM.size * 4 + 1, "f4")}, "elements are no multiple of . ranks"),
    ("alltoall", lambda: {"recv": np.ones(COMM.size * 4, "i4")}, "recv has . of int32, send . of float32|recv has"),
    ("alltoall", lambda: {"recv": np.ones(3, "f4")}, "recv has 3 elements; expected"),
    ("alltoall", lambda: {"send": None}, "send must be a numpy array, got NoneType"),
    ("alltoall", lambda: {"send": "text"}, "send must be a numpy array, got str"),
    ("gather", lambda: {"root": COMM.size}, "root . is not one of"),
    ("gather", lambda: {"root": "0"}, "root must be a whole number, got '0'"),
    ("gather", lambda: {"send": None}, "send must be a numpy array, got NoneType"),
    ("gather", lambda: {"send": {}}, "send must be a numpy array, got dict"),
    ("gather", lambda: {"counts": [LENGTH] * (COMM.size + 1)}, "counts has . numbers, for . ranks"),
    ("gather", lambda: {"counts": [7] * COMM.size}, "send has 1000 elements; expected 7"),
    ("scatter", lambda: {"root": -1}, "root -1 is not one of"),
    ("scatter", lambda: {"root": 1.5}, "root must be a whole number, got 1.5"),
    ("scatter", lambda: {"recv": frozen()}, "recv is read-only|send is read-only"),
    ("scatter", lambda: {"recv": 7}, "must be a numpy array, got int"),
    ("scatter", lambda: {"counts": [-1] * COMM.size}, r"counts\[0\] is -1; it must be at least 0"),
    ("iallreduce", lambda: {"op": "mix"}, "unknown operation 'mix'"),
    ("iallreduce", lambda: {"send": [1.0]}, "send must be a numpy array, got list"),
    ("iallreduce", lambda: {"chunk_bytes": -5}, "chunk_bytes is -5; it must be at least 0"),
    ("objects.bcast", lambda: {"root": COMM.size}, "root . is not one of"),
    ("objects.bcast", lambda: {"root": "0"}, "root must be a whole number, got '0'"),
    ("objects.gather", lambda: {"value": lambda: 0}, "(pickle|local object)"),
    ("objects.gather", lambda: {"root": None}, "root must be a whole number, got None"),
    ("objects.alltoall", lambda: {"values": 3}, "takes a list with an object for each rank, got 3"),
    ("objects.alltoall", lambda: {"values": [1] * (COMM.size + 1)}, "takes a list of . objects, got ."),
    ("objects.alltoall", lambda: {"values": [lambda: 0] * COMM.size}, "(pickle|local object)"),
    ("explain", lambda: {"what": "gather"}, "gather is the MPI library's own; others to ask about: reduce, bcast"),
    ("Staged", lambda: {"what": "barrier"}, "Staged has no barrier; it has reduce"),
    ("Staged", lambda: {"root": [0, 0]}, "root has 2 ranks, for 1 stages"),
    ("Staged", lambda: {"counts": [[1]]}, "allreduce has no blocks, and takes no counts"),
    ("Staged", lambda: {"what": "allgather", "counts": [[1] * COMM.size]}, "send has 1000 elements; expected"),
    ("empty", lambda: {"shape": -1}, "shape is -1; it must be at least 0"),
    ("empty", lambda: {"shape": "many"}, "shape must be a whole number, got 'm'"),
    ("empty", lambda: {"shape": 1.5}, "TypeError: 'float' object is not iterable"),
    ("empty", lambda: {"dtype": object}, "dtype is object: ranks can't share Python objects"),
    ("empty", lambda: {"dtype": "f5"}, "TypeError: data type 'f5' not understood"),
    ("empty", lambda: {"device": "tpu"}, "unknown device 'tpu'; known devices: cpu cuda"),
    ("empty", lambda: {"device": ["cpu"]}, "unknown device"),
    ("give_back", lambda: {"array": None}, "only arrays that `empty` returned can be given back, got NoneType"),
    ("give_back", lambda: {"array": ones()}, "only arrays that `empty` returned"),
    ("has_room", lambda: {"nbytes": "much"}, "TypeError: can't multiply sequence by non-int"),
    ("explain", lambda: {"what": "reduze"}, "unknown collective 'reduze'"),
    ("explain", lambda: {"what": ["reduce"]}, "unknown collective list"),
    ("explain", lambda: {"nbytes": "4K"}, "nbytes must be a whole number, got '4K'"),
    ("explain", lambda: {"algorithm": None}, "algorithm must be a name, got None"),
    ("plan", lambda: {"what": None}, "unknown collective None"),
    ("plan", lambda: {"recv": ones()}, "bcast has one array, and takes no recv"),
    ("plan", lambda: {"number": []}, "number must be a whole number, got list"),
    ("Staged", lambda: {"what": ["bcast"]}, "unknown collective list"),
    ("Staged", lambda: {"arrays": None}, "arrays must be a list of arrays, got None"),
    ("Staged", lambda: {"arrays": 7}, "arrays must be a list of arrays, got 7"),
    ("Staged", lambda: {"arrays": (ones() for _ in "ab")}, "arrays must be a list of arrays, got generator"),
    ("Staged", lambda: {"arrays": [None]}, "send must be a numpy array, got NoneType"),
    ("Staged", lambda: {"arrays": [ones(object)]}, "Python objects, which can't be sent"),
    ("Staged", lambda: {"recv": [ones(), ones()]}, "recv has 2 arrays, for 1 stages"),
    ("Staged", lambda: {"recv": 3}, "recv must be a list of arrays, got 3"),
    ("Staged", lambda: {"lanes": 0}, "lanes is 0; it must be at least 1"),
    ("Staged", lambda: {"lanes": "two"}, "lanes must be a whole number, got 'two'"),
    ("Staged", lambda: {"op": MPI.REPLACE}, "unknown operation of MPI"),
    ("Staged", lambda: {"algoritm": "chain"}, "unknown argument 'algoritm'; known besides Staged's own are"),
    ("Staged", lambda: {"arrays": memory(slice(0, 9), slice(20), slice(40, 50))}, "stage 0 and stage 1 overlap"),
    ("Staged", lambda: {"arrays": memory(slice(9), slice(9))}, "stage 0 and stage 1 overlap"),
    ("Staged", lambda: {"arrays": memory(slice(9)), "recv": memory(slice(8))}, "recv has 8 elements; expected 9"),
]


def test_whatever_else_is_wrong_on_all_ranks_is_named_on_all(comm):
    for name, make, said in OTHERS:
        with pytest.raises(ArgumentError, match=said) as error:
            RIGHT[name](comm, **make())
        assert "\n" not in str(error.value)
    works(comm)


@pytest.mark.mpi(min_size=2)
def test_whatever_else_is_wrong_on_one_rank_is_named_on_all(comm):
    last, over = comm.size - 1, comm.dup()
    for name, make, said in OTHERS:
        if "comm" not in make():  # a rank without a communicator knows no others
            with pytest.raises(ArgumentError, match=f"rank {last}: (.*{said}|{said})"):
                RIGHT[name](over, **(make() if comm.rank == last else {}))
    works(over)
    over.free()


@pytest.mark.mpi(min_size=2)
def test_ranks_that_differ_in_what_they_share_are_told(comm):
    with pytest.raises(DisagreementError, match="the shape: rank 0 has '\\(4,\\)', rank 1 has '\\(5,\\)'"):
        comm.empty(4 + comm.rank)
    works(comm)


def test_memory_that_is_only_read_may_be_shared_and_one_buffer_serves_for_both(comm):
    whole = np.ones(LENGTH, np.float32)
    results = [np.zeros(10, np.float32), np.zeros(10, np.float32)]
    staged = Staged(comm, "allreduce", [whole[:10], whole[5:15]], results)
    staged.start(ready=True)
    staged.wait()
    assert all((result == comm.size).all() for result in results)
    staged.free()
    comm.allreduce(whole, whole[:], algorithm="slices")
    assert (whole == comm.size).all()


def test_a_freed_communicator_says_so(comm):
    over = comm.dup()
    over.free()
    over.free()
    with pytest.raises(ArgumentError, match="allreduce: this communicator has been freed"):
        over.allreduce(ones())


def test_a_stage_that_there_is_not_is_named(comm):
    staged = Staged(comm, "allreduce", [ones()])
    for stage in ("0", 0.0, -1, 1, Hostile()):
        for method in (staged.ready, staged.wait, staged.done, staged.follow):
            with pytest.raises(ArgumentError, match="stage .* is not one of 1"):
                method(stage)
    staged.free()
