"""Report: predictions as the lines that `scaffe simulate-instances` prints."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from scaffe.parallel.instances.simulation.layers import access_rate, compute_rate, on_machine
from scaffe.parallel.instances.simulation.machine import Machine
from scaffe.parallel.instances.simulation.predict import Predicted
from scaffe.parallel.instances.simulation.training import Passes

WORTH = 1.01  # how many times as fast a run with a launch delay must be: less can be chance
USE = "cores busy", "bandwidth", "its peak"


def head_lines(passes: Passes, machine: Machine) -> Iterator[str]:
    """Iterate over the lines that say what is simulated."""
    one = sum(cost.seconds for cost in passes.costs)
    yield f"Measured: {passes.batch} images in {1e3 * one:.4g} ms on one core, {passes.batch / one:.4g} images/s"
    costs = on_machine(passes.costs, machine)
    yield f"Simulated: {machine.cores} cores, domains: {machine.domains} of {machine.bandwidth / 1e9:.4g} GB/s"
    yield (
        f"A core does {compute_rate(costs) / 1e9:.3g} GFLOP/s in compute-intensive layers, and moves "
        f"{access_rate(costs) / 1e9:.3g} GB/s in others; {sum(passes.gradients) / 1e6:.4g} MB of gradients"
    )


def size_lines(rows: Sequence[Sequence[Predicted]], gathers: Sequence[str]) -> Iterator[str]:
    """Iterate over the table of sizes: images a second by gather, and what the best gather's run uses."""
    yield _row("cores each", "instances", *gathers, *USE)
    for row in rows:
        best = best_of(row)
        rates = [_rate(one) for one in row] + ["-"] * (len(gathers) - len(row))
        yield _row(str(best.division.x), str(best.instances), *rates, *use(best))


def delay_lines(rows: Sequence[Sequence[Predicted]]) -> Iterator[str]:
    """Iterate over the table of launch delays: images a second by delay."""
    yield _row("cores each", *(f"{1e3 * one.division.delay:.3g} ms" for one in rows[0]))
    for row in rows:
        yield _row(str(row[0].division.x), *map(_rate, row))


def core_lines(rows: Sequence[tuple[int, Predicted, Predicted]]) -> Iterator[str]:
    """Iterate over the table of scaling: images a second of an instance on each core, and of one instance on all."""
    yield _row("cores", "one each", "one on all", "ratio", "each/1 core", "all/1 core")
    alone = rows[0][1].rate
    for cores, each, one in rows:
        ratios = (each.rate / one.rate, each.rate / alone, one.rate / alone)
        yield _row(str(cores), _rate(each), _rate(one), *(f"{ratio:.2f}" for ratio in ratios))


def best_line(best: Predicted) -> str:
    """Return the line that names the best division."""
    late = best.division
    delay = f"{late.groups} launch groups {1e3 * late.delay:.3g} ms apart" if late.delay else "no launch delay"
    cores = "core" if late.x == 1 else "cores"
    gather = f"gather {late.gather}, " if best.gathers else ""
    used = ", ".join(f"{name} {value}" for name, value in zip(USE, use(best), strict=True))
    return (
        f"Best: {best.instances} instances of {late.x} {cores}, {gather}{delay}: {_rate(best)} images/s, "
        f"{1e3 * best.seconds:.4g} ms an iteration; {used}"
    )


def best_of(rows: Sequence[Predicted]) -> Predicted:
    """Return the prediction of most images a second, the first of equal ones."""
    return max(rows, key=lambda one: one.rate)


def chosen(in_step: Sequence[Predicted], late: Sequence[Predicted]) -> Predicted:
    """Return the best prediction; one with a launch delay only where that is worth it."""
    best = best_of(in_step)
    later = best_of([best, *late])
    return later if later.rate >= WORTH * best.rate else best


def use(one: Predicted) -> tuple[str, str, str]:
    """Return the parts of cores and of bandwidth that a run uses: their means, and the bandwidth's peak."""
    return f"{one.cores_used:.0%}", f"{one.bandwidth_used:.0%}", f"{one.peak:.0%}"


def _rate(one: Predicted) -> str:
    return f"{one.rate:.4g}" if one.rate < 1e4 else f"{one.rate:.0f}"


def _row(*cells: str) -> str:
    return "".join(f"{cell:>12}" for cell in cells)
