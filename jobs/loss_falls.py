"""Print the first and the last losses in a training's log. Exits with 1 unless the loss has fallen by a fifth.

    python jobs/loss_falls.py NAME LOG

The first displayed loss counts, and the mean of the last three.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from statistics import fmean

from scaffe.errors import LogError
from scaffe.monitor.log_table import LogTable
from scaffe.monitor.read_log import read_log

FALL, LAST = 0.8, 3  # of the first loss; displayed losses at the end


def falls(losses: Sequence[float]) -> bool:
    """Return whether the mean of the last losses is at most FALL of the first; False where there are too few."""
    return len(losses) > LAST and fmean(losses[-LAST:]) <= FALL * losses[0]


def losses_of(table: LogTable) -> Sequence[float]:
    """Return the displayed values of the net's loss, without its weight; none where the log has none."""
    return next((list(table.outputs[name]) for name in sorted(table.weighted)), [])


def main(name: str, log: str) -> int:
    """Print a net's losses; return the exit code."""
    try:
        table = read_log(log)[-1].train
    except (LogError, IndexError):
        print(f"{name}: no training in {log}")
        return 1
    losses = losses_of(table)
    if not losses:
        print(f"{name}: no loss in {log}")
        return 1
    fell = falls(losses)
    shown = ", ".join(f"{loss:.3g}" for loss in losses[-LAST:])
    after = f"after {table.iterations[-1]} iterations {shown}"
    why = "" if fell else f": not below {FALL} of the first"
    print(f"{name}: loss {losses[0]:.3g}, {after}; {table.times[-1]:.0f} s{why}")
    return 0 if fell else 1


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
