"""DetectionEvaluate against judgements made by hand, and the mean average precision of its rows."""

import numpy as np
import pytest
from gradient_check import OneLayer

from scaffe.errors import NetError, ShapeError

TRUTH = [  # image, label, instance, xmin, ymin, xmax, ymax, difficult
    [0, 1, 0, 0.1, 0.1, 0.3, 0.3, 0], [0, 1, 1, 0.5, 0.5, 0.9, 0.9, 0], [0, 2, 0, 0.1, 0.6, 0.3, 0.9, 1],
    [1, 1, 0, 0, 0, 1, 1, 0],
]  # fmt: skip
FOUND = [  # image, label, score, xmin, ymin, xmax, ymax
    [0, 1, 0.6, 0.1, 0.1, 0.3, 0.3], [0, 1, 0.9, 0.11, 0.1, 0.3, 0.3], [0, 1, 0.3, 0.5, 0.5, 0.7, 0.7],
    [0, 2, 0.8, 0.1, 0.6, 0.3, 0.9], [1, 2, 0.7, 0, 0, 1, 1], [1, 1, 0.2, 0, 0, 0.9, 0.9],
]  # fmt: skip
JUDGED = {  # by image, label, score: true, false
    (0, 1, 0.9): (1, 0), (0, 1, 0.6): (0, 1), (0, 1, 0.3): (0, 1), (0, 2, 0.8): (1, 0), (1, 2, 0.7): (0, 1),
    (1, 1, 0.2): (1, 0),
}  # fmt: skip


def text(fields=""):
    return f'type: "DetectionEvaluate" detection_evaluate_param {{ num_classes: 4 {fields} }}'


def rows_of(it):
    return it.forward()[0].reshape(-1, 5)


def blob(rows):
    return np.array(rows, np.float64).reshape(1, 1, len(rows), -1)


def test_detections_are_true_where_they_are_the_best_of_a_true_box():
    rows = rows_of(OneLayer(text(), blob(FOUND), blob(TRUTH)))
    np.testing.assert_array_equal(rows[:3], [[-1, 1, 3, -1, -1], [-1, 2, 1, -1, -1], [-1, 3, 0, -1, -1]])
    assert {tuple(round(float(v), 3) for v in row[:3]): tuple(row[3:]) for row in rows[3:]} == JUDGED


def test_difficult_boxes_count_neither_way():
    rows = rows_of(OneLayer(text("evaluate_difficult_gt: false"), blob(FOUND), blob(TRUTH)))
    np.testing.assert_array_equal(rows[:3, 2], [3, 0, 0])
    judged = {tuple(round(float(v), 3) for v in row[:3]): tuple(row[3:]) for row in rows[3:]}
    assert judged == JUDGED | {(0, 2, 0.8): (0, 0)}


def test_a_lower_threshold_takes_more():
    rows = rows_of(OneLayer(text("overlap_threshold: 0.2"), blob(FOUND), blob(TRUTH)))
    assert rows[3:, 3].sum() == 4


def test_without_detections_and_true_boxes_only_the_counts_are_left():
    rows = rows_of(OneLayer(text(), blob([[0, *[-1] * 6], [1, *[-1] * 6]]), blob([[-1] * 8])))
    np.testing.assert_array_equal(rows, [[-1, label, 0, -1, -1] for label in (1, 2, 3)])


def test_wrong_bottoms_are_refused():
    with pytest.raises(ShapeError, match=r"layer 'it'.*detections have shape \(1, 1, 4, 8\)"):
        OneLayer(text(), blob(TRUTH), blob(TRUTH))
    with pytest.raises(NetError, match="layer 'it'.*needs num_classes"):
        OneLayer('type: "DetectionEvaluate"', blob(FOUND), blob(TRUTH))


def test_an_overlap_of_the_threshold_is_enough():
    true, found = [[0, 1, 0, 0, 0, 1, 1, 0]], [[0, 1, 0.9, 0, 0, 0.5, 1]]
    for threshold, hit in ((0.5, 1), (0.51, 0)):
        rows = rows_of(OneLayer(text(f"overlap_threshold: {threshold}"), blob(found), blob(true)))
        assert rows[-1, 3] == hit


@pytest.mark.parametrize("label", [0, 4, 1.5])
def test_a_true_box_of_no_class_is_refused(label):
    """It would be left out of the mean average precision."""
    true = [[0, label, 0, 0.1, 0.1, 0.3, 0.3, 0]]
    with pytest.raises(
        NetError, match=f"layer 'it'.*a true box has label {label}; num_classes: 4 allows labels up to 3"
    ):
        OneLayer(text(), blob(FOUND), blob(true)).forward()
