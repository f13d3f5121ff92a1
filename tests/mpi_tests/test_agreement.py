"""Agreement: equal values pass, any difference is an error on every rank that names both values."""

import pytest
from mpi4py import MPI

from collectives import CollectiveError, DisagreementError, agree, agreement

COMM = MPI.COMM_WORLD
pytestmark = pytest.mark.mpi


def test_equal_values_pass():
    agree(COMM, {"net": "a\nb", "solver": "x"})
    agree(COMM, {})


@pytest.mark.mpi(min_size=2)
@pytest.mark.parametrize("odd", range(1, COMM.size))
def test_every_rank_learns_who_differs_in_what(odd):
    value = "conv1 (20, 1, 5, 5)" if COMM.rank != odd else "conv1 (32, 1, 5, 5)"
    with pytest.raises(DisagreementError) as error:
        agree(COMM, {"the parameters": f"same\n{value}\nsame too", "the seed": "1"})
    assert str(error.value) == (
        f"the ranks differ in the parameters: rank 0 has 'conv1 (20, 1, 5, 5)', rank {odd} has 'conv1 (32, 1, 5, 5)'"
    )
    agree(COMM, {"the communicator": "still works"})


@pytest.mark.mpi(min_size=2)
def test_a_missing_value_and_a_missing_line_are_differences():
    with pytest.raises(DisagreementError, match=r"rank 0 has 'x', rank 1 has '\(none\)'"):
        agree(COMM, {"a": "x"} if COMM.rank == 0 else {})
    with pytest.raises(DisagreementError, match=r"rank 0 has 'b', rank 1 has '\(nothing\)'"):
        agree(COMM, {"a": "a\nb" if COMM.rank == 0 else "a"})


@pytest.mark.mpi(min_size=2)
def test_a_rank_that_waits_long_for_others_in_a_new_call_says_so(monkeypatch):
    late = COMM.size - 1
    monkeypatch.setattr(agreement, "LONG", 0.0)
    monkeypatch.setattr(agreement, "write", lambda text: COMM.send(text, late))
    if COMM.rank == late:  # it comes when it has heard of all others that they wait
        for rank in range(late):
            assert f"rank {rank} has waited 0 s for other ranks to agree on reduce, which is" in COMM.recv(source=rank)
    assert agreement.share(COMM, None, may_run="reduce" if COMM.rank != late else "")
    assert agreement.share(COMM, None)  # without plans no other call can run


@pytest.mark.mpi(min_size=2)
def test_a_rank_with_an_error_waits_for_less_long_and_none_where_no_call_may_run(monkeypatch):
    waited = []
    monkeypatch.setattr(agreement, "_is_complete", lambda request, patience, meanwhile: waited.append(patience) or True)
    assert agreement.share(COMM, None)
    assert waited == []
    with pytest.raises(CollectiveError, match="rank 0: no memory"):
        agreement.share(COMM, CollectiveError("no memory") if COMM.rank == 0 else None, may_run="reduce")
    assert waited == [agreement.LONG if COMM.rank else agreement.PATIENCE]
