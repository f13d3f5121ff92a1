"""Drawing: curves and bars side by side, which most of the figures have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any


def curves(
    axes: Any, x: Sequence[float], rows: Mapping[str, Sequence[float]], colours: Iterable[str], style: str = "o--",
    label: str = "{}", **how: Any,
) -> None:  # fmt: skip
    """Plot rows of values by name against x, each in its colour; {} in `label` is the name, `how` is matplotlib's."""
    for (name, values), colour in zip(rows.items(), colours, strict=True):
        axes.plot(x, values, style, color=colour, label=label.format(name), **how)


def bars(axes: Any, rows: Sequence[tuple[str, Iterable[float], str]]) -> None:
    """Draw rows, each a label, its values and a colour, with the bars of a place side by side."""
    width = 0.8 / len(rows)
    for k, (label, values, colour) in enumerate(rows):
        found, shift = list(values), width * (k - (len(rows) - 1) / 2)
        axes.bar([i + shift for i in range(len(found))], found, width, color=colour, label=label)


def plain(axis: Any, ticks: Sequence[float]) -> None:
    """Set the ticks of a logarithmic axis, with plain numbers."""
    axis.set_ticks(ticks, [f"{tick:g}" for tick in ticks])
    axis.set_ticks([], minor=True)


def legends(panels: Iterable[Any]) -> None:
    """Give each panel that has labels a legend, unless it has one."""
    for axes in panels:
        if axes.get_legend() is None and axes.get_legend_handles_labels()[0]:
            axes.legend(frameon=False, fontsize=8)
