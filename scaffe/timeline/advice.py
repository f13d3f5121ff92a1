"""Advice: what a trace's numbers suggest to try, in one sentence, and all of its numbers in a few lines."""

from __future__ import annotations

from collections.abc import Iterator

from scaffe.monitor.waited import remedy
from scaffe.parallel.workflows.workflow import registered
from scaffe.timeline.overlap import OVERLAPPED, PHASES, Report
from scaffe.timeline.timeline import BACKWARD, BETWEEN, FORWARD, MESSAGES, READ, TRANSFORM

WORTH = 0.05  # of an iteration: less is not worth a change
LAG = 0.15  # a rank that takes so much longer than the others holds them up
MOST = 0.5  # of a cost: a cause of so much is the one to name
SMALL = 64 << 10  # bytes of a bucket that is mostly latency


def lines(report: Report) -> Iterator[str]:
    """Iterate over the lines that `scaffe timeline` prints."""
    ranks = len(report.trace.ranks)
    yield f"{ranks} rank(s), {len(report.names)} iteration(s), {_ms(report.total)} each (median)"
    yield f"{'phase':<13}{'busy':>12}{'exposed':>12}{'hidden':>12}{'':>7}  exposed on the worst rank"
    for kind in PHASES:
        phase = report.phases[kind]
        if kind in OVERLAPPED and phase.busy:
            share = f"{phase.hidden / phase.busy:.0%}"
            times = f"{_ms(phase.busy):>12}{_ms(phase.exposed):>12}{_ms(phase.hidden):>12}{share:>7}"
            yield f"{kind:<13}{times}  {_ms(phase.worst_exposed)}, rank {phase.worst_rank}"
        else:
            yield f"{kind:<13}{_ms(phase.busy) if phase.busy else '-':>12}"
    if ranks > 1:
        yield f"{'loss':<13}{'':>12}{_ms(report.loss):>12}  waiting for all ranks' losses"
        name, own = report.trace.ranks[report.slowest].name, _ms(report.own[report.slowest])
        yield f"Slowest: {name}, {own} an iteration of its own, {report.lag:.0%} more than the others' median"
        yield _most_awaited(report)
    yield f"Advice: {advice(report)}"


def _most_awaited(report: Report) -> str:
    if not report.waits:
        return "Most awaited: no bucket; no message was waited for"
    kind, bucket = max(report.waits, key=lambda key: report.waits[key])
    return f"Most awaited: {_bucket(report, bucket)}, {kind}, {_ms(report.waits[kind, bucket])} an iteration"


def advice(report: Report) -> str:
    """Return what to try, in a sentence: what costs most, and what is known to help."""
    reading = report.phases[READ].exposed + report.phases[TRANSFORM].exposed
    costs = {kind: report.phases[kind].exposed for kind in MESSAGES} | {READ: reading}
    worst = max(costs, key=lambda kind: costs[kind])
    if report.lag > LAG and report.behind > max(WORTH * report.total, MOST * costs[worst]):
        return _about_slowest(report)
    if costs[worst] < WORTH * report.total:
        return _about_rest(report)
    return _about_reading(report, reading) if worst == READ else _about_messages(report, worst)


def _about_slowest(report: Report) -> str:
    return (
        f"{report.trace.ranks[report.slowest].name} takes {report.lag:.0%} longer than the others, which wait for it: "
        "see what else runs on its cores, and whether ranks share them."
    )


def _about_rest(report: Report) -> str:
    if report.loss > WORTH * report.total:
        return (
            f"ranks wait {_ms(report.loss)} an iteration for each other's loss, though none is always the slowest: "
            "look for other work on their cores."
        )
    return "nothing to gain from overlap: computation hardly waits for messages or records."


def _about_reading(report: Report, seconds: float) -> str:
    help = remedy(report.phases[READ].exposed, report.phases[TRANSFORM].exposed)
    return f"computation waits {_ms(seconds)} an iteration ({seconds / report.total:.0%}) for records, and {help}."


def _about_messages(report: Report, kind: str) -> str:
    return f"{kind} is exposed for {_ms(report.phases[kind].exposed)} an iteration{_remedy(report, kind)}."


def _remedy(report: Report, kind: str) -> str:
    run, phase, buckets = report.trace.run, report.phases[kind], report.trace.buckets
    compute = report.phases[FORWARD].busy + report.phases[BACKWARD].busy
    bucket, share = _share_of_most_awaited(report, kind)
    workflow = registered().get(run.workflow)
    if workflow and kind in workflow.advice:
        return f", {workflow.advice[kind]}"
    if phase.busy > compute:
        return (
            f" and takes {_ms(phase.busy)}, more than the {_ms(compute)} of forward and backward that could hide it: "
            "try --reduce auto, a larger batch on each rank, or a faster network"
        )
    if share > MOST and bucket == BETWEEN:
        return ", most of it handling messages between layers: try --drive helper"
    if len(buckets) == 1:
        return ", all in one message that nothing can hide: try a smaller --bucket-bytes"
    if share > MOST and " to " in bucket:
        return f", most of it behind {_bucket(report, bucket)}: try --bucket-bytes {_half(buckets[bucket])}"
    if share > MOST and bucket in buckets:
        return (
            f", most of it behind {_bucket(report, bucket)}, a layer's own: try --reduce auto, or another --chunk-bytes"
        )
    if len(buckets) > 8 and sum(buckets.values()) / len(buckets) < SMALL:
        return f", in {len(buckets)} small messages: try a larger --bucket-bytes, such as 1M"
    drive = "hook" if run.drive != "hook" else "helper"
    return f", spread over {len(buckets)} buckets: try --drive {drive}, or --reduce auto"


def _share_of_most_awaited(report: Report, kind: str) -> tuple[str, float]:
    """Return the bucket that waits of this kind are most for, and its part of them."""
    waits = {bucket: seconds for (other, bucket), seconds in report.waits.items() if other == kind}
    bucket = max(waits, key=lambda name: waits[name], default="")
    return bucket, waits[bucket] / sum(waits.values()) if bucket else 0.0


def _bucket(report: Report, name: str) -> str:
    nbytes = report.trace.buckets.get(name)
    if nbytes:
        return f"{name} ({_bytes(nbytes)})"
    return "messages handled between layers" if name == BETWEEN else f"{name} buckets at once"


def _half(nbytes: int) -> str:
    """Return half of so many bytes as a flag, rounded down to a power of 2."""
    return _bytes(1 << max(10, (nbytes // 2).bit_length() - 1))


def _bytes(nbytes: int) -> str:
    unit, name = next(((u, n) for u, n in ((1 << 20, "M"), (1 << 10, "K")) if nbytes >= u), (1, ""))
    return f"{nbytes / unit:.3g}{name}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
