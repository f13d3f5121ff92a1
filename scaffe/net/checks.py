"""Checks: what a net's layers must not say together, and what they say without effect."""

from __future__ import annotations

from collections.abc import Sequence

from scaffe.blob import Blob
from scaffe.context import Context
from scaffe.errors import NetError
from scaffe.layers.layer import Layer, asked_engine
from scaffe.monitor.log import log
from scaffe.proto import LayerParameter


def log_without_effect(layers: Sequence[LayerParameter], engine: str) -> None:
    """Log fields without effect, such as how many layers ask for a library that is not that of the engine."""
    for asked, name in (("MKLDNN", "onednn"), ("CUDNN", "cuda")):
        count = sum(asked_engine(param) == asked for param in layers)
        if count and engine != name:
            log.info("engine: %s of %d layer(s) has no effect: %s computes them", asked, count, engine)
    if unrolled := [param.name for param in layers if param.recurrent_param.debug_info]:
        log.info("debug_info of layer '%s' has no effect: no net is unrolled", "', '".join(unrolled))


def check_names(layers: Sequence[Layer]) -> None:
    """Raise NetError where several layers of one name have parameters, which files keep by the layer's name."""
    learning: dict[str, list[Layer]] = {}
    for layer in layers:
        if layer.blobs:
            learning.setdefault(layer.name, []).append(layer)
    for name, (_, *others) in learning.items():
        if others:
            which = ", ".join(f"{one.type} with top '{' '.join(one.param.top)}'" for one in learning[name])
            called = f"are called '{name}'" if name else "have no name"
            raise NetError(f"{len(others) + 1} layers with parameters {called} ({which}); give each a name of its own")


def check_batch_splits(context: Context, layers: Sequence[Layer], bottoms: Sequence[Sequence[Blob]]) -> None:
    """Raise ShapeError where the batch is divided over ranks, and a layer mixes its samples."""
    if context.size == 1 or context.scaling != "strong":
        return
    for layer, bottom in zip(layers, bottoms, strict=True):
        if reason := layer.mixes_samples(bottom):
            raise layer.error(
                f"{reason}, so the batch can't be divided over {context.divisors}; "
                "give each the whole batch with --scal weak"
            )
