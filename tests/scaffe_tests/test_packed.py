"""PackedParameters: where parameters and statistics stand."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scaffe.blob import Blob
from scaffe.packed import ALIGNMENT, PackedParameters, Parameter

KINDS = st.lists(st.tuples(st.integers(1, 40), st.booleans()), max_size=6)


@given(KINDS)
def test_what_learns_stands_in_order_before_what_is_measured(kinds):
    parameters = []
    for i, (count, statistic) in enumerate(kinds):
        blob = Blob((count,))
        blob.data[...] = i + 1
        parameters.append(Parameter("it", i, blob, statistic=statistic))
    packed = PackedParameters(parameters)
    starts = [packed.slices[i].start for i, (_, statistic) in enumerate(kinds) if not statistic]
    starts += [packed.slices[i].start for i, (_, statistic) in enumerate(kinds) if statistic]
    assert starts == sorted(set(starts))
    for i, (count, statistic) in enumerate(kinds):
        part, room = packed.slices[i], packed.statistics if statistic else packed.learned
        assert room.start <= part.start and part.stop <= room.stop
        assert packed.data[part].ctypes.data % ALIGNMENT == 0
        np.testing.assert_array_equal(packed.view(packed.data, i), [i + 1] * count)
        parameters[i].blob.diff[...] = 7
    assert packed.diff[packed.learned].sum() == 7 * sum(count for count, statistic in kinds if not statistic)
    assert (packed.learned.start, packed.statistics.start, packed.statistics.stop) == (
        0, packed.learned.stop, len(packed.data),
    )  # fmt: skip
