"""The bytes of a bucket that suit a network keep less exposed than any others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffe.parallel.buckets import suited_bytes


@given(st.integers(10**5, 10**9), st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-8), st.floats(0.01, 100))
def test_no_other_size_keeps_less_exposed(total, alpha, beta, factor):
    def exposed(n):
        return total / n * alpha + n * beta

    best = suited_bytes(total, alpha, beta)
    other = min(total, max(1.0, factor * best))
    assert exposed(best) <= exposed(other) * (1 + 1e-6)


def test_where_messages_are_dear_one_takes_all():
    assert suited_bytes(1000, 1.0, 1e-9) == pytest.approx(1000)
