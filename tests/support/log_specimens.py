"""Logs written for the tests: lines in the words of a solver, with times that the test chooses."""

from datetime import datetime, timedelta

START = datetime(2026, 11, 20, 12)


def line(text, seconds=0.0, level="I", year=False, start=START):
    """Return a line with glog's prefix, `seconds` after the start."""
    when = start + timedelta(seconds=seconds)
    return (
        f"{level}{when:%Y%m%d %H:%M:%S.%f}" * year
        + f"{level}{when:%m%d %H:%M:%S.%f}" * (not year)
        + (f"  4711 solver.cpp:239] {text}\n")
    )


def head(net="Net", batch=10, max_iter=100, seconds=0.0, **options):
    """Return the first lines of a job of ours."""
    texts = (
        "Use CPU.",
        f"Global batch {batch}: {batch} sample(s)",
        f"Solving {net}",
        f"Training to iteration {max_iter}",
    )
    return "".join(line(text, seconds, **options) for text in texts)


def shown(iteration, loss, seconds, lr=0.1, name="loss", **options):
    """Return the lines of an iteration that is displayed."""
    texts = (
        f"Iteration {iteration} (2.5 iter/s, 4s/10 iters), loss = {loss}",
        f"    Train net output #0: {name} = {loss} (* 1 = {loss} loss)",
        f"Iteration {iteration}, lr = {lr}",
    )
    return "".join(line(text, seconds, **options) for text in texts)


def evaluated(iteration, accuracy, loss, seconds, net=0, **options):
    """Return the lines of a test."""
    texts = (
        f"Iteration {iteration}, Testing net (#{net})",
        f"    Test net output #0: accuracy = {accuracy}",
        f"    Test net output #1: loss = {loss} (* 1 = {loss} loss)",
    )
    return "".join(line(text, seconds, **options) for text in texts)


def whole(**options):
    """Return the log of a run of 100 iterations that is displayed each 10, tested each 50, and ends as it should."""
    text = head(**options)
    for iteration in range(0, 100, 10):
        if iteration % 50 == 0:
            text += evaluated(iteration, iteration / 100, 2 - iteration / 100, 0.5 + iteration)
        text += shown(iteration, 2 - iteration / 100, 1 + iteration)
    last = "Snapshotting solver state to binary proto file net_iter_100.solverstate", "Iteration 100, loss = 1"
    text += "".join(line(one, 101) for one in last)
    return text + evaluated(100, 1, 1, 102) + line("Optimization Done.", 103)
