"""Input transforms: how images were prepared for the nets that a file's weights come from, as the file says.

Weights that a solver saves have the transforms of its train and test nets' data layers. Weights of Caffe have none.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from scaffe.proto import InputTransform

TRAIN_NET, TEST_NET = "train", "test 0"
CLOSE = 0.05  # of pixels from 0 to 255: a mean in a text is rounded


def mean_of(one: InputTransform) -> np.ndarray:
    """Return the mean that is subtracted: a number for each channel, or one for all, [0] for none."""
    return np.array(list(one.mean) or list(one.transform_param.mean_value) or [0.0], np.float32)


def chosen(transforms: Sequence[InputTransform]) -> InputTransform | None:
    """Return the transform of a test net, or else of the train net; None for none, or for several that differ."""
    tests = [one for one in transforms if one.net != TRAIN_NET]
    found = tests or list(transforms)
    if not found or any(differences(found[0], other) for other in found[1:]):
        return None
    return found[0]


def differences(trained: InputTransform, here: InputTransform) -> list[str]:
    """Return what differs between two transforms: a text for each difference, with both values.

    Crops count where both have one, colours where both are of data layers.
    """
    theirs, ours = trained.transform_param, here.transform_param
    means = mean_of(trained), mean_of(here)
    fits = len({len(mean) for mean in means} - {1}) < 2
    found = []
    if not np.isclose(theirs.scale, ours.scale, rtol=1e-5):
        found.append(f"scale {theirs.scale:g}, here {ours.scale:g}")
    if not fits or not np.allclose(*means, atol=CLOSE):
        found.append(f"mean {text_of(means[0])}, here {text_of(means[1])}")
    if theirs.crop_size and ours.crop_size and theirs.crop_size != ours.crop_size:
        found.append(f"crop_size {theirs.crop_size}, here {ours.crop_size}")
    if here.layer and (theirs.force_color, theirs.force_gray) != (ours.force_color, ours.force_gray):
        found.append(f"{_colour(trained)}, here {_colour(here)}")
    return found


def text_of(mean: np.ndarray) -> str:
    """Return a mean as text: "none", or a number for each channel."""
    return ",".join(f"{value:g}" for value in mean) if mean.any() else "none"


def warning(trained: Sequence[InputTransform], here: InputTransform) -> str:
    """Return what a user is warned of, "" where images are prepared as in training, or nothing is known of that."""
    known = chosen(trained)
    found = differences(known, here) if known else []
    return f"trained with {'; '.join(found)}: the net gets other values than in training" if found else ""


def _colour(one: InputTransform) -> str:
    forced = one.transform_param
    return "force_color" if forced.force_color else "force_gray" if forced.force_gray else "colours as stored"
