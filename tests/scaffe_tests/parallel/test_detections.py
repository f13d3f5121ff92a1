"""The score of a test whose batches have outputs of different sizes."""

import numpy as np
import pytest
from google.protobuf import text_format

import scaffe
from scaffe.layers.average_precision import TRUTH
from scaffe.parallel.detections import detection_scores
from scaffe.parallel.evaluate import BatchResult, means
from scaffe.proto import NetParameter

NET = """
layer { name: "in" type: "Input" top: "found" top: "truth" top: "other"
  input_param { shape { dim: 1 dim: 1 dim: 1 dim: 7 } shape { dim: 1 dim: 1 dim: 1 dim: 8 } shape { dim: 2 } } }
layer { name: "e" type: "DetectionEvaluate" bottom: "found" bottom: "truth" top: "eval"
  detection_evaluate_param { num_classes: 2 } }
"""
FIRST = np.array([[TRUTH, 1, 1, -1, -1], [0, 1, 0.9, 0, 1]])
SECOND = np.array([[TRUTH, 1, 1, -1, -1], [0, 1, 0.5, 1, 0], [1, 1, 0.2, 1, 0]])


def test_a_detections_output_is_scored_over_all_batches_and_others_are_averaged():
    net = scaffe.Net(text_format.Parse(NET, NetParameter()), scaffe.TEST)
    scores = detection_scores(net)
    assert [*scores] == ["eval"]
    batches = [
        BatchResult(i, i, {"eval": rows.reshape(-1), "other": np.array([i, 3])})
        for i, rows in enumerate((FIRST, SECOND))
    ]
    mean = means(batches, scores)
    assert mean.outputs["eval"] == pytest.approx([0.5 * 1 / 2 + 0.5 * 2 / 3])
    np.testing.assert_array_equal(mean.outputs["other"], [0.5, 3])
