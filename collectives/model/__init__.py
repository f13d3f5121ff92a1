"""Model: the time of a schedule on a described cluster. `python -m collectives.model` prints a table."""

from __future__ import annotations

from collectives.model.predicting import best_row, cost, main, predict, scaffe_row, tuned_row

__all__ = ["best_row", "cost", "main", "predict", "scaffe_row", "tuned_row"]
