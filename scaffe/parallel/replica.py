"""Replica: a net of this rank, and what the thread that computes it reports to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from scaffe.monitor.record import RankRecord
from scaffe.net.net import Net


class Gradients(Protocol):
    """Where a net's gradients go: an Aggregate, or the Submissions of one of several instances."""

    def submit(self, layer: int) -> None:
        """Mark a layer's gradients as complete."""

    def finish(self) -> None:
        """Return when no sum over instances needs the calling thread."""


class Weights:
    """Where a net's parameters are: in the memory that is updated, which the net reads."""

    def begin(self) -> None:
        """Begin an iteration, or a pass after parameters have changed."""

    def fetch(self, layer: int) -> None:
        """Return once a layer's updated parameters are where the net reads them."""


@dataclass(frozen=True)
class Replica:
    """One of the nets that a rank computes in each pass: its only one, or an instance's."""

    net: Net
    gradients: Gradients
    record: RankRecord
    weights: Weights
