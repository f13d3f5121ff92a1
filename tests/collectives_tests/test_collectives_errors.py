"""Which errors all ranks raise alike, and what a fault of one of them is told with."""

from __future__ import annotations

import pytest

from collectives import errors


def test_faults_losses_and_timeouts_are_one_ranks_own() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    own = {kind.__name__ for kind in kinds if not kind.alike}
    assert own == {"DeviceFault", "RankLostError", "WaitTimeout"}
    assert all(issubclass(kind, errors.CollectiveError) for kind in kinds)


def test_a_fault_says_what_was_under_way() -> None:
    located = errors.DeviceFault("illegal address").located("allreduce of 8 bytes")
    assert isinstance(located, errors.DeviceFault) and str(located) == "allreduce of 8 bytes: illegal address"
    with pytest.raises(TimeoutError):
        raise errors.WaitTimeout
