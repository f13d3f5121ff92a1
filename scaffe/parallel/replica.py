"""Replica: a net of this rank, and what the thread that computes it reports to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scaffe.monitor.record import RankRecord
from scaffe.net import Net


class Gradients(Protocol):
    """Where a net's gradients go: an Aggregate, or the Submissions of one of several instances."""

    def submit(self, layer: int) -> None:
        """Mark a layer's gradients as complete."""

    def finish(self) -> None:
        """Return when no sum over instances needs the calling thread."""


@dataclass(frozen=True)
class Replica:
    """One of the nets that a rank computes in each pass: its only one, or an instance's."""

    net: Net
    gradients: Gradients
    record: RankRecord
