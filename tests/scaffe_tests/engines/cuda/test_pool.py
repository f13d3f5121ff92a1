"""The places of blobs in one allocation: no two that are in use together overlap, and gaps are used."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from scaffe.engines.cuda.pool import ALIGNMENT, Span, aligned, pack

STEPS = st.integers(0, 12)
SPANS = st.lists(
    st.builds(lambda n, a, b: Span(n, min(a, b), max(a, b)), st.integers(0, 5000), STEPS, STEPS), max_size=16
)


@given(SPANS)
def test_spans_wanted_at_the_same_step_never_overlap(spans):
    offsets, nbytes = pack(spans)
    for i, j in combinations(range(len(spans)), 2):
        together = set(range(spans[i].first, spans[i].last + 1)) & set(range(spans[j].first, spans[j].last + 1))
        if together and spans[i].nbytes and spans[j].nbytes:
            assert offsets[i] + spans[i].nbytes <= offsets[j] or offsets[j] + spans[j].nbytes <= offsets[i]
    assert all(offset % ALIGNMENT == 0 and offset >= 0 for offset in offsets)
    assert all(offset + span.nbytes <= nbytes for offset, span in zip(offsets, spans, strict=True) if span.nbytes)


@given(SPANS)
def test_a_plan_takes_no_less_than_its_peak_and_no_more_than_all_spans_together(spans):
    peak = max(sum(aligned(s.nbytes) for s in spans if s.first <= step <= s.last) for step in range(13))
    assert peak <= pack(spans).nbytes <= sum(aligned(span.nbytes) for span in spans)


@given(SPANS)
def test_spans_that_all_last_to_the_end_lie_one_after_the_other(spans):
    kept = [span._replace(first=0, last=12) for span in spans]
    assert pack(kept).nbytes == sum(aligned(span.nbytes) for span in kept)


def test_a_chain_of_gradients_takes_two_places_in_turn():
    chain = [Span(1024, i, i + 1) for i in range(20)]
    assert pack(chain).nbytes == 2 * 1024


def test_a_span_goes_into_the_smallest_gap_that_takes_it():
    between = [Span(4096, 0, 9), Span(2048, 0, 3), Span(1024, 0, 9), Span(1000, 0, 3), Span(800, 0, 9)]
    late = Span(700, 5, 6)
    offsets, nbytes = pack([*between, late])
    assert nbytes == pack(between).nbytes
    assert offsets[5] == offsets[3]
