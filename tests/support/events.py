"""What a rank does in training, in order: layers that compute, collectives that it waits for or lets begin."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from collectives import Communicator, Staged
from scaffe.net import Net


def recorded(monkeypatch: pytest.MonkeyPatch, net: Net) -> list[str]:
    """Return a list to which training adds what this rank does from now on.

    "forward NAME" and "backward NAME" are layers that begin to compute, "bcast" and "reduce" collectives that the
    rank waits for; "begin parameters of NAME" and "begin gradients of NAME" are stages that may begin.
    """
    events: list[str] = []

    def note(owner: object, name: str, texts: Callable[..., list[str]]) -> None:
        work = getattr(owner, name)

        def noting(*given, **how):
            events.extend(texts(*given, **how))
            return work(*given, **how)

        monkeypatch.setattr(owner, name, noting)

    def started(staged: Staged, ready: bool = False) -> list[str]:
        return [f"begin {name}" for name in staged.names] if ready else []

    for verb in ("bcast", "reduce"):
        note(Communicator, verb, lambda *_, verb=verb, **how: [verb])
    for layer in net.layers:
        for way in ("forward", "backward"):
            note(layer, way, lambda *_, text=f"{way} {layer.name}": [text])
    note(Staged, "start", started)
    note(Staged, "ready", lambda staged, stage: [f"begin {staged.names[stage]}"])
    return events
