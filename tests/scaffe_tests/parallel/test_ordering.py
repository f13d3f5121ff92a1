"""Ordering: what goes out while gradients come in fits into the time that their reduces leave."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffe.parallel.ordering import Ordering, share_ahead
from scaffe.parallel.propagate import buckets_ahead


@pytest.mark.parametrize(
    ("backward", "reduces", "share"),
    [(1.0, 2.0, 0.0), (1.0, 1.0, 0.0), (3.0, 2.0, 0.5), (9.0, 2.0, 1.0), (1.0, 0, 1)],
)
def test_as_much_goes_out_as_fits_beside_the_reduces(backward, reduces, share):
    assert share_ahead(backward, reduces) == share


@given(st.lists(st.integers(1, 1000), min_size=1, max_size=30), st.floats(0, 1))
def test_the_last_buckets_go_ahead_up_to_their_share(nbytes, share):
    ahead = buckets_ahead(nbytes, share)
    assert ahead == list(reversed(range(len(nbytes))))[: len(ahead)]
    room = share * sum(nbytes)
    assert sum(nbytes[k] for k in ahead) <= room + 1e-9 * sum(nbytes)
    if len(ahead) < len(nbytes):
        assert sum(nbytes[k] for k in ahead) + nbytes[-1 - len(ahead)] > room


def test_the_order_is_decided_once_by_all_ranks_times_without_the_first():
    class Way:
        seconds, share = (0.0, 0.0), None

        def reorder(self, share):
            assert self.share is None
            self.share = share

    way, told = Way(), []
    ordering = Ordering(way, way, lambda mine: mine + np.array([2.0, 0.0]))  # the other rank's backward is the longer
    for seconds in [(100.0, 1.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (50.0, 1.0)]:
        way.seconds = seconds
        told.append(ordering.took())
    assert way.share == 0.5 and ordering.is_over
    assert [bool(text) for text in told] == [False, False, False, True, False] and told[3].startswith("50%")
