"""What a fine-tuning has reached: which held-out pictures are taken for what, and the picture of that."""

from __future__ import annotations

import io
from collections.abc import Sequence
from typing import Any

import numpy as np

from scaffe.errors import ScaffeError
from scaffe.files.atomic import write_atomically

NUMBERED = 25  # classes up to which the cells have numbers, and the axes all names
LONGEST = 24  # letters of a name in the picture
WORST = 3  # classes, and confusions, that are told


def confusions(labels: Sequence[int], found: Sequence[int], classes: int) -> np.ndarray:
    """Return how often pictures of a class (row) were taken for a class (column)."""
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (np.asarray(labels), np.asarray(found)), 1)
    return counts


def lines(counts: np.ndarray, names: Sequence[str]) -> list[str]:
    """Return what people want to know: the accuracy, and the most frequent mistakes."""
    right, total = int(np.trace(counts)), int(counts.sum())
    told = [f"Accuracy on {total} held-out pictures: {right / total:.4f} ({total - right} wrong)"]
    wrong = counts - np.diag(np.diag(counts))
    for place in np.argsort(-wrong, axis=None, kind="stable")[:WORST]:
        row, column = divmod(int(place), len(names))
        if wrong[row, column]:
            told.append(f"  {wrong[row, column]} of {counts[row].sum()} '{names[row]}' taken for '{names[column]}'")
    return told


def draw(counts: np.ndarray, names: Sequence[str], out: str) -> None:
    """Write a picture of the confusions. Raise ScaffeError without matplotlib."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise ScaffeError("pictures need matplotlib, which is not installed: pip install 'scaffe[plot]'") from None
    with matplotlib.rc_context({"font.size": 8, "text.parse_math": False}):
        side = 2.5 + 0.28 * min(len(names), NUMBERED)
        figure = Figure(figsize=(side + 0.8, side), layout="constrained")
        axes = figure.subplots()
        shares = counts / np.maximum(1, counts.sum(1, keepdims=True))
        image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
        figure.colorbar(image, ax=axes, label="share of the class", shrink=0.8)
        _name(axes, names)
        if len(names) <= NUMBERED:
            _number(axes, counts, shares)
        accuracy = np.trace(counts) / counts.sum()
        axes.set_title(f"{counts.sum()} held-out pictures, accuracy {accuracy:.3f}")
        picture = io.BytesIO()
        figure.savefig(picture, format="png", dpi=150)
    write_atomically(out, picture.getvalue())


def _name(axes: Any, names: Sequence[str]) -> None:
    axes.set_xlabel("taken for")
    axes.set_ylabel("class")
    if len(names) <= NUMBERED:
        short = [name if len(name) <= LONGEST else f"{name[: LONGEST - 1]}…" for name in names]
        turn = 90 if max(map(len, short)) > 2 else 0
        axes.set_xticks(range(len(names)), short, rotation=turn)
        axes.set_yticks(range(len(names)), short)


def _number(axes: Any, counts: np.ndarray, shares: np.ndarray) -> None:
    for (row, column), count in np.ndenumerate(counts):
        if count:
            colour = "white" if shares[row, column] > 0.5 else "black"
            axes.text(column, row, str(count), ha="center", va="center", color=colour)
