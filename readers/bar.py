"""A progress bar, shown where stderr is a terminal."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TypeVar

Item = TypeVar("Item")


def bar(
    items: Iterable[Item], source: str | os.PathLike[str], unit: str, shown: bool, total: int, done: int = 0
) -> Iterable[Item]:
    """Return the items, with a bar that shows the name of `source`, the rate and the time left.

    `total` is the number of items; `done` of them were finished before this call.
    """
    from tqdm import tqdm  # here: it takes a tenth of the time of `import scaffe`

    name = os.path.basename(os.fspath(source).rstrip("/"))
    return tqdm(items, name, total, initial=done, unit=unit, disable=None if shown else True, dynamic_ncols=True)
