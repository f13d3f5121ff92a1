"""A progress bar, shown only if stderr is a terminal."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def progress(first: int, last: int, shown: bool) -> Iterator[Callable[[int], object]]:
    """Give a function that shows an iteration in a bar over iterations `first` to `last`.

    There is no bar unless `shown` and stderr is a terminal.
    """
    if not (shown and sys.stderr.isatty()):
        yield lambda iteration: None
        return
    from tqdm import tqdm  # here: it takes a tenth of the time of `import scaffe`

    tqdm.monitor_interval = 0  # no thread of tqdm's own
    with tqdm(initial=first, total=last, unit="iter", dynamic_ncols=True) as bar:
        yield lambda iteration: bar.update(iteration - bar.n)
