"""hook: a communication hook for DistributedDataParallel, whose messages are shorter than the gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

from collectives.codecs import CODECS, FEEDBACK
from collectives.errors import ArgumentError


def hook(codec: str = "bf16", error_feedback: bool = False) -> Callable[[Any, Any], torch.futures.Future[Any]]:
    """Return a hook: gradients travel as `codec`, "bf16", "float16" or "int8", and are summed in float32.

        model.register_comm_hook(None, collectives.torch.hook(codec="int8", error_feedback=True))

    The hook's state is the process group, or None for the default one. With `error_feedback` each rank keeps what
    rounding has lost, and adds it the next time. Gradients that are not float32 travel as they are. Raise ArgumentError
    for an unknown codec.
    """
    if codec not in CODECS:
        raise ArgumentError(f"unknown codec '{codec}'; known are {', '.join(CODECS)}")
    numbers = codec + FEEDBACK * bool(error_feedback)

    def run(state: Any, bucket: Any) -> torch.futures.Future[Any]:
        group = state or dist.group.WORLD
        buffer = bucket.buffer()
        work = group.mean(buffer, numbers if buffer.dtype is torch.float32 else "", bucket.index())
        return work.get_future().then(lambda future: future.value()[0])

    run.__annotations__.clear()  # PyTorch refuses those that are texts
    return run
