"""An algorithm that a user adds as a file, under a name that nobody adds: a tree with three children a rank."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from collectives import schedules
from collectives.schedules import registry

TRIDENT = """
from collectives.schedules.registry import register
from collectives.schedules.tree_algorithm import TreeAlgorithm
from collectives.schedules.trees import Tree


class Trident(Tree):
    def parent(self, v):
        return (v - 1) // 3 if v else None

    def children(self, v):
        return [u for u in range(3 * v + 1, 3 * v + 4) if u < self.size]


@register
class TridentAlgorithm(TreeAlgorithm):
    name = "trident"
    about = "a tree of ours"
    rounds = "3 n"
    tree = Trident
    letter = "z"
    chunk_bytes = (12345,)
"""


@contextmanager
def added(folder: Path, source: str = TRIDENT, name: str = "trident") -> Iterator[None]:
    """Drop a file into collectives/schedules, as far as imports can tell, and take it out again."""
    place = folder / f"with_{name}"
    place.mkdir(exist_ok=True)
    (place / f"{name}.py").write_text(source)
    before, path = dict(registry._registered), list(schedules.__path__)
    registry.rediscover()
    schedules.__path__ = [*path, str(place)]
    try:
        yield
    finally:
        schedules.__path__ = path
        registry._registered.clear()
        registry._registered.update(before)
        registry.rediscover()
        sys.modules.pop(f"{schedules.__name__}.{name}", None)
