"""The bytes of a bucket that suit a network keep less exposed than any others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scaffe.parallel.buckets import suited_bytes


@given(
    st.integers(10**5, 10**9), st.floats(1e-6, 1e-3), st.floats(1e-11, 1e-8), st.floats(0.01, 100),
    st.sampled_from([(2, 1), (8, 1), (9, 2), (160, 153)]),
)  # fmt: skip
def test_no_other_size_keeps_less_exposed(total, alpha, beta, factor, hops):
    def exposed(n):
        return total / n * hops[1] * alpha + n * beta

    best = suited_bytes(total, alpha, beta, hops[0])
    other = min(total, max(1.0, factor * best))
    rounded = (2**0.5 + 0.5**0.5) / 2 if hops[1] > 1 else 1.0  # a power of two, at most a factor of sqrt(2) away
    assert exposed(best) <= exposed(other) * rounded * (1 + 1e-6)


def test_where_messages_are_dear_one_takes_all():
    assert suited_bytes(1000, 1.0, 1e-9, 2) == pytest.approx(1000)


def test_up_to_eight_ranks_count_one_latency():
    assert [suited_bytes(10**8, 1e-4, 1e-9, ranks) for ranks in range(2, 9)] == 7 * [3_162_278]  # sqrt(1e8 x 1e5)
    assert suited_bytes(10**8, 1e-4, 1e-9, 9) == 1 << 22  # sqrt(1e8 x 2e5) = 4.47e6


def test_a_bucket_has_a_byte_at_least():
    assert [suited_bytes(1000, 1e-12, 1.0, ranks) for ranks in (2, 9)] == [1, 1]


def test_on_many_ranks_buckets_are_a_power_of_two_or_everything():
    assert suited_bytes(10**8, 1e-4, 1e-9, 160) == 1 << 25  # sqrt(1e8 x 153e5) = 39.1e6
    assert suited_bytes(10**7, 1e-4, 1e-9, 160) == 10**7
