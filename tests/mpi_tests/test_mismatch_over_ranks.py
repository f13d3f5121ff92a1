"""A rank in another call than the others, which are in a known one: all raise the same error, and go on."""

import numpy as np
import pytest
from mpi4py import MPI

from collectives import ArgumentError, Communicator, DisagreementError, agreement, mismatch

WORLD = MPI.COMM_WORLD
ODD = WORLD.size - 1
pytestmark = pytest.mark.mpi(min_size=2)
ONES, STRIDED = np.ones(8, np.float32), np.ones((8, 2), np.float32)[:, 0]
OTHER = {
    "a list": ({"send": [1.0] * 8}, ArgumentError, f"rank {ODD}: send must be a numpy array, got list"),
    "strides": ({"send": STRIDED}, ArgumentError, f"rank {ODD}: send must be contiguous, got shape"),
    "no operation": ({"op": "total"}, ArgumentError, f"rank {ODD}: .*total"),
    "length": ({"send": np.ones(7, np.float32)}, DisagreementError, "elements: rank 0 has '8', rank .* has '7'"),
    "operation": ({"op": "max"}, DisagreementError, "rank 0 has 'allreduce sum', rank .* has 'allreduce max'"),
    "check": ({"check": True}, DisagreementError, "the call: rank 0 has 'made before', rank .* has 'new'"),
}


@pytest.fixture(scope="module", autouse=True)
def quick():
    """Ask at once, and look often."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(agreement, "ASK", 0.0)
        patch.setattr(mismatch, "LOOK", 1e-3)
        yield


@pytest.fixture
def comm():
    with Communicator(WORLD) as made:
        yield made


@pytest.mark.parametrize("algorithm", ["mpi", "ring", "slices"])
@pytest.mark.parametrize("other", OTHER)
def test_all_ranks_raise_it_and_go_on(comm, other, algorithm):
    changed, kind, text = OTHER[other]
    given = {"send": ONES.copy(), "algorithm": algorithm}
    for _ in range(2):
        given["send"][:] = 1
        comm.allreduce(**given)
    with pytest.raises(kind, match=text):
        comm.allreduce(**given | (changed if comm.rank == ODD else {}))
    if comm.rank == ODD:
        assert (given["send"] == comm.size).all()  # the last result, though the array took part once more
    given["send"][:] = comm.rank
    comm.allreduce(**given)
    assert (given["send"] == sum(range(comm.size))).all()


WITHOUT_A_PLAN = {
    "objects.allgather": lambda comm: comm.objects.allgather(1),
    "dup": lambda comm: comm.dup().free(),
    "empty": lambda comm: comm.empty(3),
    "agree": lambda comm: comm.agree({}),
    "explain": lambda comm: comm.explain("reduce", 8),
    "give_back": lambda comm: comm.give_back(),
    "has_room": lambda comm: comm.has_room(1),
}


@pytest.mark.parametrize("other", WITHOUT_A_PLAN)
def test_calls_without_a_plan_reach_the_others_too(comm, other):
    for _ in range(2):
        comm.allreduce(given := np.ones(8, np.float32))
    with pytest.raises(DisagreementError, match=f"the operation: rank 0 has 'allreduce sum', rank .* has '{other}'"):
        WITHOUT_A_PLAN[other](comm) if comm.rank == ODD else comm.allreduce(given)
    WITHOUT_A_PLAN[other](comm)
    comm.allreduce(given := np.ones(8, np.float32))
    assert (given == comm.size).all()


@pytest.mark.parametrize("algorithm", ["mpi", "ring", "slices"])
@pytest.mark.parametrize("other", ["a list", "length", "check"])
def test_a_request_raises_it_at_its_wait(comm, other, algorithm):
    changed, kind, text = OTHER[other]
    given = {"send": ONES.copy(), "algorithm": algorithm}
    for _ in range(2):
        comm.iallreduce(**given).wait()
    before = given["send"].copy()
    with pytest.raises(kind, match=text):
        request = comm.iallreduce(**given | (changed if comm.rank == ODD else {}))
        assert comm.rank != ODD
        request.wait()
    if comm.rank == ODD:
        assert (given["send"] == before).all()
    given["send"][:] = comm.rank
    comm.iallreduce(**given).wait()
    assert (given["send"] == sum(range(comm.size))).all()


@pytest.mark.parametrize("verb", ["allgather", "reduce_scatter", "alltoall", "barrier", "reduce", "gather"])
def test_verbs_of_the_library_and_ours(comm, verb):
    """A rank whose call ends without the others may have left it: here the rank that gets the result waits."""
    if comm.size == 2 or verb not in ("reduce", "gather"):
        whole = np.ones(comm.size, np.float32)
        known = (lambda: comm.barrier()) if verb == "barrier" else (lambda: getattr(comm, verb)(whole))
        if verb == "gather":
            known = lambda: comm.gather(*((whole,) if comm.rank == 0 else (whole[:1],)))  # noqa: E731
        for _ in range(2):
            known()
        with pytest.raises(ArgumentError, match=f"rank {ODD}: send must be a numpy array, got str"):
            known() if comm.rank != ODD else comm.allreduce("text")
        comm.allreduce(ones := np.ones(3, np.float32))
        assert (ones == comm.size).all()


def test_two_ranks_at_once_and_arrays_that_do_not_last(comm):
    for _ in range(2):
        comm.allreduce(memoryview(bytearray(8)), op="max")
    own = {0: memoryview(bytearray(8)), ODD: "text"}.get(comm.rank, 5)
    with pytest.raises(ArgumentError, match=r"rank (1|2): send must be a numpy array, got (int|str)"):
        comm.allreduce(own, op="max")


def test_a_rank_that_comes_late_is_in_no_other_call(comm):
    """It is asked where it is, by a rank in a call that is new to all, and comes there."""
    comm.allreduce(ONES.copy())
    if comm.rank == ODD:
        assert WORLD.recv(source=0) == "asked"
    elif comm.rank == 0:
        send = comm._mismatch._send

        def told(*message):
            send(*message)
            if message[1:] == (ODD, mismatch.QUESTION):
                WORLD.send("asked", ODD)

        comm._mismatch._send = told
    values = np.full(5, comm.rank, np.float32)
    comm.allreduce(values)
    assert (values == sum(range(comm.size))).all()
    comm.allreduce(values)  # a known call, to which the question no longer belongs
    assert (values == comm.size * sum(range(comm.size))).all()


def test_no_message_is_left_for_a_later_communicator():
    """A new one gets the number of one that was freed."""
    with Communicator(WORLD) as comm:
        comm.barrier()
        mine = comm._mismatch
        if comm.rank == 0:
            mine._send(0, ODD, mismatch.QUESTION)  # answered or not
            mine._send((0, mismatch.AGREES), ODD, mismatch.ANSWER)
    assert WORLD.allreduce(sum(mine._balance)) == 0 and mine.comm is None
    assert mine not in mismatch.ANSWERS._mismatches
