"""A progress bar, shown only if stderr is a terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm


def progress(first: int, last: int, shown: bool) -> tqdm[Any]:
    """Return a bar over iterations `first` to `last`; it draws nothing unless `shown` and stderr is a terminal."""
    from tqdm import tqdm  # here: it takes a tenth of the time of `import scaffe`

    tqdm.monitor_interval = 0  # no thread of tqdm's own
    hidden = not (shown and sys.stderr.isatty())
    return tqdm(initial=first, total=last, unit="iter", disable=hidden, dynamic_ncols=True)
