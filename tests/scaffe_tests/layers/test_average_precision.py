"""Average precision in its three versions, against sums by hand."""

import numpy as np
import pytest

from scaffe.layers.average_precision import TRUTH, by_class

COUNTS = [[TRUTH, 1, 4, -1, -1], [TRUTH, 2, 2, -1, -1], [TRUTH, 3, 1, -1, -1], [TRUTH, 4, 0, -1, -1]]
FIRST = np.array([*COUNTS, [0, 1, 0.9, 1, 0], [0, 1, 0.5, 1, 0], [0, 2, 0.3, 0, 1], [0, 1, 0.1, 0, 0]])
SECOND = np.array([[TRUTH, 1, 1, -1, -1], [1, 1, 0.8, 0, 1], [1, 1, 0.7, 0, 1], [1, 1, 0.2, 1, 0]])
# Of label 1, 5 true boxes: hits and misses in the order of scores 0.9 + , 0.8 -, 0.7 -, 0.5 +, 0.2 +.
STEPS = [(1 / 1, 0.2), (2 / 4, 0.4), (3 / 5, 0.6)]


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("Integral", 0.2 * (1 + 2 / 4 + 3 / 5)),
        ("MaxIntegral", 0.2 * (1 + 3 / 5 + 3 / 5)),
        ("11point", (3 * 1 + 4 * 3 / 5) / 11),
    ],
)
@pytest.mark.parametrize("flat", [False, True])
def test_each_version_is_the_sum_by_hand(version, expected, flat):
    parts = [FIRST, SECOND]
    found = by_class([part.reshape(-1) for part in parts] if flat else parts, version)
    assert found.keys() == {1, 2, 3, 4}
    assert found[1] == pytest.approx(expected, rel=1e-6)
    assert (found[2], found[3], found[4]) == (0, 0, 0)
    assert by_class(parts[::-1], version)[1] == pytest.approx(expected, rel=1e-6)


def test_all_true_is_1_in_each_version():
    rows = np.array([[TRUTH, 1, 2, -1, -1], [0, 1, 0.9, 1, 0], [0, 1, 0.8, 1, 0]])
    assert [by_class([rows], version)[1] for version in ("Integral", "MaxIntegral", "11point")] == [1, 1, 1]
