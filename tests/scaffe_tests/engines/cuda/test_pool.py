"""The places of blobs in one allocation: no two that are in use together overlap, and gaps are used."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from scaffe.engines.cuda.pool import ALIGNMENT, UsageRecord, aligned, pack

STEPS = st.integers(0, 12)
RECORDS = st.lists(
    st.builds(lambda n, a, b: UsageRecord(n, min(a, b), max(a, b)), st.integers(0, 5000), STEPS, STEPS), max_size=16
)


@given(RECORDS)
def test_blobs_in_use_at_the_same_step_never_overlap(records):
    offsets, nbytes = pack(records)
    for i, j in combinations(range(len(records)), 2):
        together = set(range(records[i].first, records[i].last + 1)) & set(range(records[j].first, records[j].last + 1))
        if together and records[i].nbytes and records[j].nbytes:
            assert offsets[i] + records[i].nbytes <= offsets[j] or offsets[j] + records[j].nbytes <= offsets[i]
    assert all(offset % ALIGNMENT == 0 and offset >= 0 for offset in offsets)
    assert all(
        offset + record.nbytes <= nbytes for offset, record in zip(offsets, records, strict=True) if record.nbytes
    )


@given(RECORDS)
def test_a_placement_takes_no_less_than_its_peak_and_no_more_than_all_blobs_together(records):
    peak = max(sum(aligned(s.nbytes) for s in records if s.first <= step <= s.last) for step in range(13))
    assert peak <= pack(records).nbytes <= sum(aligned(record.nbytes) for record in records)


@given(RECORDS)
def test_blobs_that_all_last_to_the_end_lie_one_after_the_other(records):
    kept = [record._replace(first=0, last=12) for record in records]
    assert pack(kept).nbytes == sum(aligned(record.nbytes) for record in kept)


def test_a_chain_of_gradients_takes_two_places_in_turn():
    chain = [UsageRecord(1024, i, i + 1) for i in range(20)]
    assert pack(chain).nbytes == 2 * 1024


def test_a_blob_goes_into_the_smallest_gap_that_takes_it():
    between = [
        UsageRecord(4096, 0, 9),
        UsageRecord(2048, 0, 3),
        UsageRecord(1024, 0, 9),
        UsageRecord(1000, 0, 3),
        UsageRecord(800, 0, 9),
    ]
    late = UsageRecord(700, 5, 6)
    offsets, nbytes = pack([*between, late])
    assert nbytes == pack(between).nbytes
    assert offsets[5] == offsets[3]
