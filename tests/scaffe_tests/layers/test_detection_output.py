"""DetectionOutput against SSD's algorithm, written box by box."""

import math

import numpy as np
import pytest
from gradient_check import OneLayer

from scaffe.errors import ShapeError
from scaffe.layers.boxes import suppress

PRIORS, CLASSES = 12, 4


def text(fields):
    return f'type: "DetectionOutput" detection_output_param {{ num_classes: {CLASSES} {fields} }}'


def bottoms(seed, shared=True):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 0.6, (PRIORS, 2))
    priors = np.concatenate([corners, corners + rng.uniform(0.1, 0.4, (PRIORS, 2))], 1)
    variances = rng.uniform(0.1, 0.3, (PRIORS, 4))
    scores = rng.dirichlet(np.ones(CLASSES), (2, PRIORS))
    codes = rng.standard_normal((2, PRIORS * (1 if shared else CLASSES) * 4)) / 2
    return codes, scores.reshape(2, -1), np.stack([priors, variances]).reshape(1, 2, -1)


def decode(kind, prior, variance, code):
    code = [c * v for c, v in zip(code, variance, strict=True)]
    w, h = prior[2] - prior[0], prior[3] - prior[1]
    if kind == "CORNER":
        return [p + c for p, c in zip(prior, code, strict=True)]
    if kind == "CORNER_SIZE":
        return [p + c * side for p, c, side in zip(prior, code, (w, h, w, h), strict=True)]
    cx, cy = (prior[0] + prior[2]) / 2 + code[0] * w, (prior[1] + prior[3]) / 2 + code[1] * h
    w, h = w * math.exp(code[2]), h * math.exp(code[3])
    return [cx - w / 2, cy - h / 2, cx + w / 2, cy + h / 2]


def size(box):
    return 0 if box[2] < box[0] or box[3] < box[1] else (box[2] - box[0]) * (box[3] - box[1])


def overlap(a, b):
    w, h = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    return w * h / (size(a) + size(b) - w * h) if w > 0 and h > 0 else 0


def kept_of(boxes, scores, least, limit, top_k, eta):
    order = sorted((i for i in range(PRIORS) if scores[i] > least), key=lambda i: -scores[i])
    kept = []
    for i in order[: top_k if top_k >= 0 else None]:
        if all(overlap(boxes[i], boxes[j]) <= limit for j in kept):
            kept.append(i)
            if eta < 1 and limit > 0.5:
                limit *= eta
    return kept


def expected_rows(codes, scores, priors, kind, in_target, shared, background, least, limit, top_k, eta, keep):
    rows = []
    for n in range(2):
        found = []
        for label in range(CLASSES):
            if label == background:
                continue
            own = codes[n].reshape(PRIORS, -1, 4)[:, 0 if shared else label]
            variances = np.ones((PRIORS, 4)) if in_target else priors[0, 1].reshape(-1, 4)
            boxes = [decode(kind, *one) for one in zip(priors[0, 0].reshape(-1, 4), variances, own, strict=True)]
            chances = scores[n].reshape(PRIORS, CLASSES)[:, label]
            kept = kept_of(boxes, chances, least, limit, top_k, eta)
            found += [[n, label, chances[i], *boxes[i]] for i in kept]
        if 0 <= keep < len(found):
            best = sorted(found, key=lambda row: -row[2])[:keep]
            found = [row for row in found if row in best]
        rows += found
    return rows


CASES = [
    dict(kind="CORNER"), dict(kind="CENTER_SIZE"), dict(kind="CORNER_SIZE"), dict(kind="CENTER_SIZE", in_target=True),
    dict(kind="CORNER_SIZE", in_target=True), dict(kind="CENTER_SIZE", shared=False),
    dict(kind="CORNER", background=-1),
    dict(kind="CENTER_SIZE", top_k=3), dict(kind="CENTER_SIZE", keep=5), dict(kind="CENTER_SIZE", eta=0.7, limit=0.9),
    dict(kind="CENTER_SIZE", least=0.5, limit=0.2), dict(kind="CENTER_SIZE", keep=4, top_k=2, background=2),
]  # fmt: skip
DEFAULTS = dict(in_target=False, shared=True, background=0, least=0.05, limit=0.3, top_k=-1, eta=1.0, keep=-1)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_boxes_are_those_of_the_loop(case, seed):
    case = DEFAULTS | case
    codes, scores, priors = bottoms(seed, case["shared"])
    nms = f"nms_threshold: {case['limit']} eta: {case['eta']}" + (
        f" top_k: {case['top_k']}" if case["top_k"] >= 0 else ""
    )
    fields = (
        f"share_location: {str(case['shared']).lower()} background_label_id: {case['background']} "
        f"code_type: {case['kind']} variance_encoded_in_target: {str(case['in_target']).lower()} "
        f"keep_top_k: {case['keep']} confidence_threshold: {case['least']} nms_param {{ {nms} }}"
    )
    (y,) = OneLayer(text(fields), codes, scores, priors).forward()
    expected = expected_rows(codes, scores, priors, **case)
    assert len(expected) > 0 and y.shape == (1, 1, len(expected), 7)
    np.testing.assert_allclose(y[0, 0], expected, rtol=1e-5, atol=1e-7)


def test_without_detections_each_image_has_a_row():
    (y,) = OneLayer(text("confidence_threshold: 1"), *bottoms(0)).forward()
    np.testing.assert_array_equal(y[0, 0], [[0, *[-1] * 6], [1, *[-1] * 6]])


@pytest.mark.parametrize("bottom", [0, 1])
def test_priors_that_do_not_match_the_features_are_refused(bottom):
    values = list(bottoms(0))
    values[bottom] = values[bottom][:, :-4]
    said = f"12 priors in bottom 2 .* need 48 .* a sample in bottom {bottom}, which has shape"
    with pytest.raises(ShapeError, match=f"layer 'it'.*{said}"):
        OneLayer(text(""), *values)


def test_something_else_in_the_place_of_priors_is_refused():
    codes, scores, _ = bottoms(0)
    with pytest.raises(ShapeError, match="layer 'it'.*bottom 2 has shape .*; give priors"):
        OneLayer(text(""), codes, scores, codes)


def test_eta_does_not_move_a_threshold_of_a_half():
    """As in SSD's Caffe: the third box overlaps the first by 0.48, which 0.5 allows and eta 0.9 times it would not."""
    boxes = np.array([[0, 0, 1, 1], [2, 2, 3, 3], [0, 0, 0.48, 1]])
    assert suppress(boxes, 0.5, 0.9) == [0, 1, 2]
    assert suppress(boxes, 0.51, 0.9) == [0, 1]
