"""Drawing: a figure's picture, and what most of the pictures have."""

from __future__ import annotations

import io
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from figure import Data, Figure

PAPER, OURS, MODEL, OTHER = "black", "#3F72AF", "#E07A5F", "#81B29A"  # colours
SIZE, DPI, COLOURS = (6.4, 3.6), 100, 48  # inches; dots an inch; of a picture's palette


def picture(figure: Figure, measured: Data, modelled: Data) -> bytes:
    """Return the figure's picture as PNG."""
    from matplotlib.figure import Figure as Picture
    from PIL import Image

    drawn = Picture(figsize=SIZE, layout="constrained")
    axes = drawn.subplots()
    figure.draw(axes, measured, modelled)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(frameon=False, fontsize=8)
    axes.spines[["top", "right"]].set_visible(False)
    content, small = io.BytesIO(), io.BytesIO()
    drawn.savefig(content, format="png", dpi=DPI)
    Image.open(content).convert("RGB").quantize(COLOURS).save(small, format="png", optimize=True)
    return small.getvalue()


def curves(
    axes: Any, x: Sequence[float], rows: Mapping[str, Sequence[float]], colours: Iterable[str], style: str = "o--",
    label: str = "{}", **how: Any,
) -> None:  # fmt: skip
    """Plot rows of values by name against x, each in its colour; {} in `label` is the name, `how` is matplotlib's."""
    for (name, values), colour in zip(rows.items(), colours, strict=True):
        axes.plot(x, values, style, color=colour, label=label.format(name), **how)


def bars(axes: Any, names: Sequence[str], rows: Sequence[tuple[str, Iterable[float], str]], **how: Any) -> None:
    """Draw rows, each a label, its values and a colour, with the bars of a name side by side."""
    width = 0.8 / len(rows)
    for k, (label, values, colour) in enumerate(rows):
        found, shift = list(values), width * (k - (len(rows) - 1) / 2)
        axes.bar([i + shift for i in range(len(found))], found, width, color=colour, label=label)
    axes.set_xticks(range(len(names)), list(names), **how)


def ranges(axes: Any, start: float, found: Iterable[Mapping[str, float]]) -> None:
    """Draw the range of each number, a bar after a bar from `start` on."""
    for k, one in enumerate(found):
        axes.plot([start + k] * 2, [one["low"], one["high"]], "_-", color=PAPER, linewidth=1.2, zorder=4)


def of_paper(axes: Any, x: Sequence[float], y: Sequence[float], label: str) -> None:
    """Draw the paper's points."""
    axes.plot(x, y, "s", color=PAPER, label=f"paper: {label}", zorder=4)


def plain(axis: Any, ticks: Sequence[float]) -> None:
    """Set the ticks of a logarithmic axis, with plain numbers."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)
