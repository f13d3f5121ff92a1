"""MultiBoxLoss against SSD's algorithm, written box by box, finite differences, and itself on several ranks."""

import math

import numpy as np
import pytest
from gradient_check import OneLayer, check_gradients, contexts, distinct, rows

from scaffe.errors import NetError, ShapeError

PRIORS, CLASSES = 10, 3


def text(fields=""):
    return f'type: "MultiBoxLoss" multibox_loss_param {{ num_classes: {CLASSES} code_type: CENTER_SIZE {fields} }}'


def bottoms(images=3, seed=0, per_image=(2, 0, 3)):
    rng = np.random.default_rng(seed)
    corners = rng.uniform(0, 0.6, (PRIORS, 2))
    priors = np.concatenate([corners, corners + rng.uniform(0.2, 0.4, (PRIORS, 2))], 1)
    truth = []
    for image, count in enumerate(per_image[:images]):
        for instance in range(count):
            box = priors[rng.integers(PRIORS)] + rng.uniform(-0.05, 0.05, 4)
            truth.append([image, rng.integers(1, CLASSES), instance, *box, instance % 2])
    codes, scores = distinct(images, PRIORS * 4, seed=seed) * 3, distinct(images, PRIORS * CLASSES, seed=seed + 1) * 4
    both = np.stack([priors, rng.uniform(0.1, 0.3, (PRIORS, 4))])
    return codes, scores, both.reshape(1, 2, -1), np.array(truth or [[-1] * 8]).reshape(1, 1, -1, 8)


def overlap(a, b):
    w, h = (min(a[i + 2], b[i + 2]) - max(a[i], b[i]) for i in (0, 1))
    sizes = sum((c[2] - c[0]) * (c[3] - c[1]) for c in (a, b))
    return w * h / (sizes - w * h) if w > 0 and h > 0 else 0


def matches(priors, boxes, threshold, per_prediction):
    index, most = [-1] * len(priors), [max([overlap(p, b) for b in boxes], default=0) for p in priors]
    pool = list(range(len(boxes)))
    while pool:
        pairs = [(overlap(priors[i], boxes[j]), -i, j) for i in range(len(priors)) if index[i] == -1 for j in pool]
        best, i, j = max(pairs, default=(0, 0, 0), key=lambda pair: (pair[0], pair[1], -pair[2]))
        if best <= 1e-6:
            break
        index[-i] = j
        most[-i] = best
        pool.remove(j)
    for i, prior in enumerate(priors):
        if per_prediction and index[i] == -1 and boxes:
            best = max(range(len(boxes)), key=lambda j: overlap(prior, boxes[j]))
            if overlap(prior, boxes[best]) >= threshold:
                index[i] = best
    return index, most


def encode(box, prior, variance):
    w, h = prior[2] - prior[0], prior[3] - prior[1]
    code = [((box[0] + box[2]) - (prior[0] + prior[2])) / 2 / w, ((box[1] + box[3]) - (prior[1] + prior[3])) / 2 / h,
            math.log((box[2] - box[0]) / w), math.log((box[3] - box[1]) / h)]  # fmt: skip
    return [c / v for c, v in zip(code, variance, strict=True)]


def class_loss(scores, label, logistic):
    if not logistic:
        return math.log(sum(math.exp(s) for s in scores)) - scores[label]
    return sum(math.log(1 + math.exp(s)) - s * (c == label) for c, s in enumerate(scores))


def expected(codes, scores, both, truth, *, weight=1.0, threshold=0.5, ratio=3.0, per_prediction=True, mining=True,
             logistic=False, squared=False, difficult=True):  # fmt: skip
    """Return the sum of the losses and the number of matches."""
    priors, variances = both[0].reshape(2, -1, 4)
    loss, count = 0.0, 0
    for image in range(len(codes)):
        own = [row for row in truth[0, 0] if row[0] == image and (difficult or not row[7])]
        index, most = matches(priors, [row[3:7] for row in own], threshold, per_prediction)
        rows_of = scores[image].reshape(PRIORS, CLASSES)
        positive = [i for i in range(PRIORS) if index[i] >= 0]
        for i in positive:
            row = own[index[i]]
            distance = codes[image].reshape(-1, 4)[i] - encode(row[3:7], priors[i], variances[i])
            parts = [d * d / 2 if squared or abs(d) < 1 else abs(d) - 0.5 for d in distance]
            loss += weight * sum(parts) + class_loss(rows_of[i], int(row[1]), logistic)
        others = [i for i in range(PRIORS) if index[i] < 0]
        if mining:
            others = [i for i in others if most[i] < 0.5]
            others = sorted(others, key=lambda i: -class_loss(rows_of[i], 0, logistic))[: int(len(positive) * ratio)]
        loss += sum(class_loss(rows_of[i], 0, logistic) for i in others)
        count += len(positive)
    return loss, count


CASES = [
    ("", {}),
    ("neg_pos_ratio: 1 loc_weight: 2", {"ratio": 1, "weight": 2}),
    ("overlap_threshold: 0.3", {"threshold": 0.3}),
    ("match_type: BIPARTITE", {"per_prediction": False}),
    ("mining_type: NONE", {"mining": False}),
    ("conf_loss_type: LOGISTIC", {"logistic": True}),
    ("loc_loss_type: L2", {"squared": True}),
    ("use_difficult_gt: false", {"difficult": False}),
]


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(("fields", "how"), CASES)
def test_the_loss_is_that_of_the_loops(fields, how, seed):
    values = bottoms(seed=seed)
    loss, count = expected(*values, **how)
    assert count > 0
    assert OneLayer(text(fields), *values).forward()[0] == pytest.approx(loss / count, rel=1e-5)


@pytest.mark.parametrize(("fields", "how"), CASES)
def test_gradients_agree_with_finite_differences(fields, how):
    check_gradients(text(fields), *bottoms(), smooth=[0, 1])


@pytest.mark.parametrize(("mode", "divisor"), [("FULL", 3 * PRIORS), ("BATCH_SIZE", 3), ("NONE", 1)])
def test_other_normalisations(mode, divisor):
    values = bottoms()
    whole = text() + f" loss_param {{ normalization: {mode} }}"
    assert OneLayer(whole, *values).forward()[0] == pytest.approx(expected(*values)[0] / divisor, rel=1e-5)


def test_without_true_boxes_the_loss_and_its_gradients_are_0():
    it = OneLayer(text(), *bottoms(per_image=(0, 0, 0)))
    assert it.forward()[0] == 0
    codes, scores, *_ = it.backward(1, down=[True, True, False, False])
    assert not codes.any() and not scores.any()


def test_losses_and_gradients_of_all_ranks_add_up_to_one_ranks():
    codes, scores, priors, truth = bottoms()
    down = [True, True, False, False]
    whole = OneLayer(text(), codes, scores, priors, truth)
    (loss,), gradients = whole.forward(), whole.backward(2, down=down)
    count, parts = expected(codes, scores, priors, truth)[1], []
    for context in contexts(3, 2):
        context.allsums = lambda _: [float(count)]
        own = truth[0, 0][np.isin(truth[0, 0, :, 0], np.arange(3)[rows(context)])].copy()
        own[:, 0] -= context.first_row
        it = OneLayer(text(), codes[rows(context)], scores[rows(context)], priors, own.reshape(1, 1, -1, 8),
                      context=context)  # fmt: skip
        parts.append((it.forward()[0], it.backward(2, down=down)))
    assert sum(part for part, _ in parts) == pytest.approx(float(loss), rel=1e-12)
    for i in (0, 1):
        np.testing.assert_allclose(np.concatenate([part[i] for _, part in parts]), gradients[i], rtol=1e-12)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("share_location: false", "share_location: false is not here"),
        ("bp_inside: true", "bp_inside: true is not here"),
        ("mining_type: HARD_EXAMPLE", "HARD_EXAMPLE and nms_param are not here"),
        ("do_neg_mining: false", "do_neg_mining contradicts mining_type"),
    ],
)
def test_what_is_not_here_is_refused(fields, said):
    with pytest.raises(NetError, match=f"layer 'it'.*{said}"):
        OneLayer(text(fields), *bottoms())


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [((0, 1), np.nan, "has label nan"), ((0, 1), 1.5, "has label 1.5"),
     ((0, 1), 3, "a true box has label 3; num_classes: 3 allows labels up to 2"), ((0, 1), 0, "has label 0"),
     ((0, 0), 7, "a true box is of image 7; the batch here has 3")],
)  # fmt: skip
def test_wrong_true_boxes_are_refused(place, value, said):
    codes, scores, priors, truth = bottoms()
    truth[0, 0][place] = value
    with pytest.raises(NetError, match=f"layer 'it'.*{said}"):
        OneLayer(text(), codes, scores, priors, truth).forward()


def test_priors_that_do_not_match_the_features_are_refused():
    codes, scores, priors, truth = bottoms()
    with pytest.raises(ShapeError, match="layer 'it'.*10 priors in bottom 2 .* need 40 locations a sample in bottom 0"):
        OneLayer(text(), codes[:, 4:], scores, priors, truth)
    with pytest.raises(ShapeError, match=r"layer 'it'.*bottom 3 has shape .*; give true boxes"):
        OneLayer(text(), codes, scores, priors, codes)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ("neg_pos_ratio: -1", "neg_pos_ratio is -1; give 0 or more"),
        ("neg_pos_ratio: inf", "neg_pos_ratio is inf"),
        ("background_label_id: 3", "background_label_id 3 is none of num_classes: 3"),
    ],
)
def test_fields_that_fit_no_class_or_negatives_are_refused(fields, said):
    with pytest.raises(NetError, match=f"layer 'it'.*{said}"):
        OneLayer(text(fields), *bottoms())
