"""The mean average precision of a test's detections, over the batches of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from scaffe.layers import average_precision
from scaffe.monitor.log import log
from scaffe.net.net import Net
from scaffe.parallel.evaluate import Score


def detection_scores(net: Net, version: str = "Integral", each_class: bool = False) -> dict[str, Score]:
    """Return for each output of a DetectionEvaluate layer what gives its mean average precision, for `means`.

    `version` is the solver's ap_version. With `each_class` it also logs the average precision of each label.
    """
    names = {layer.top[0] for layer in net.param.layer if layer.type == "DetectionEvaluate"}
    return {name: partial(_score, version, each_class) for name in net.outputs if name in names}


def _score(version: str, each_class: bool, parts: Sequence[np.ndarray]) -> float:
    found = average_precision.by_class(parts, version)
    if each_class:
        for label, value in found.items():
            log.info("class%d: %.6g", label, value)
    return float(np.mean([*found.values()]))
