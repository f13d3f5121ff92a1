"""Advice: the times of a trace in a few lines, and one sentence on what to try."""

from __future__ import annotations

from collections.abc import Iterator

from scaffe.monitor.spans import BACKWARD, BETWEEN, FORWARD, GATHER, MESSAGES, READ, TRANSFORM
from scaffe.monitor.waited import remedy
from scaffe.parallel.workflows.workflow import registered
from scaffe.timeline.overlap import OVERLAPPED, PHASES, Summary

THRESHOLD = 0.05  # of an iteration: a smaller cost gets no advice
LAG = 0.15  # by which a rank's own time must exceed the others' to be named as slow
MOST = 0.5  # of a cost: a cause of a larger part is named
SMALL = 64 << 10  # bytes: the time of a smaller bucket is mostly latency


def lines(summary: Summary) -> Iterator[str]:
    """Iterate over the lines that `scaffe timeline` prints."""
    ranks = len(summary.trace.ranks)
    yield f"{ranks} rank(s), {len(summary.names)} iteration(s), {_ms(summary.total)} each (median)"
    yield f"{'phase':<13}{'busy':>12}{'exposed':>12}{'hidden':>12}{'':>7}  exposed on the worst rank"
    for kind in PHASES:
        phase = summary.phases[kind]
        if kind == GATHER and not phase.busy:  # ranks without several instances
            continue
        if kind in OVERLAPPED and phase.busy:
            share = f"{phase.hidden / phase.busy:.0%}"
            times = f"{_ms(phase.busy):>12}{_ms(phase.exposed):>12}{_ms(phase.hidden):>12}{share:>7}"
            yield f"{kind:<13}{times}  {_ms(phase.worst_exposed)}, rank {phase.worst_rank}"
        else:
            yield f"{kind:<13}{_ms(phase.busy) if phase.busy else '-':>12}"
    if summary.instances:
        yield f"{'instances':<13}{'':>12}{_ms(summary.instances):>12}  waiting for other instances of the same rank"
    if ranks > 1:
        yield f"{'loss':<13}{'':>12}{_ms(summary.loss):>12}  waiting for all ranks' losses"
        name, own = summary.trace.ranks[summary.slowest].name, _ms(summary.own[summary.slowest])
        yield f"Slowest: {name}, {own} an iteration of its own, {summary.lag:.0%} more than the others' median"
        yield _most_awaited(summary)
    yield f"Advice: {advice(summary)}"


def _most_awaited(summary: Summary) -> str:
    if not summary.waits:
        return "Most awaited: no bucket; no message was waited for"
    kind, bucket = max(summary.waits, key=lambda key: summary.waits[key])
    return f"Most awaited: {_bucket(summary, bucket)}, {kind}, {_ms(summary.waits[kind, bucket])} an iteration"


def advice(summary: Summary) -> str:
    """Return a sentence that names the largest cost and what to try."""
    reading = summary.phases[READ].exposed + summary.phases[TRANSFORM].exposed
    costs = {kind: summary.phases[kind].exposed for kind in MESSAGES} | {READ: reading}
    worst = max(costs, key=lambda kind: costs[kind])
    if summary.lag > LAG and summary.behind > max(THRESHOLD * summary.total, MOST * costs[worst]):
        return _about_slowest(summary)
    if costs[worst] < THRESHOLD * summary.total:
        return _about_rest(summary)
    return _about_reading(summary, reading) if worst == READ else _about_messages(summary, worst)


def _about_slowest(summary: Summary) -> str:
    name = summary.trace.ranks[summary.slowest].name
    return (
        f"{name} takes {summary.lag:.0%} longer than the others, which wait for it: "
        "see what else runs on its cores, and whether ranks share them."
    )


def _about_rest(summary: Summary) -> str:
    if summary.loss > THRESHOLD * summary.total:
        return (
            f"ranks wait {_ms(summary.loss)} an iteration for each other's loss, though none is always the slowest: "
            "look for other work on their cores."
        )
    if summary.instances > THRESHOLD * summary.total:
        return (
            f"instances wait {_ms(summary.instances)} an iteration for each other: see whether they share cores, or "
            "have shares of the batch of different sizes."
        )
    return "nothing to gain from overlap: computation hardly waits for messages or records."


def _about_reading(summary: Summary, seconds: float) -> str:
    what = remedy(summary.phases[READ].exposed, summary.phases[TRANSFORM].exposed)
    return f"computation waits {_ms(seconds)} an iteration ({seconds / summary.total:.0%}) for records, and {what}."


def _about_messages(summary: Summary, kind: str) -> str:
    return f"{kind} is exposed for {_ms(summary.phases[kind].exposed)} an iteration{_remedy(summary, kind)}."


def _remedy(summary: Summary, kind: str) -> str:
    run, phase, buckets = summary.trace.run, summary.phases[kind], summary.trace.buckets
    compute = summary.phases[FORWARD].busy + summary.phases[BACKWARD].busy
    bucket, share = _share_of_most_awaited(summary, kind)
    behind = f", most of it behind {_bucket(summary, bucket)}"
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
        return f"{behind}: try --bucket-bytes {_half(buckets[bucket])}"
    if share > MOST and bucket in buckets:
        return f"{behind}, a layer's own: try --reduce auto, or another --chunk-bytes"
    if len(buckets) > 8 and sum(buckets.values()) / len(buckets) < SMALL:
        return f", in {len(buckets)} small messages: try a larger --bucket-bytes, such as 1M"
    drive = "hook" if run.drive != "hook" else "helper"
    return f", spread over {len(buckets)} buckets: try --drive {drive}, or --reduce auto"


def _share_of_most_awaited(summary: Summary, kind: str) -> tuple[str, float]:
    """Return the bucket with the longest waits of this kind, and its share of them."""
    waits = {bucket: seconds for (other, bucket), seconds in summary.waits.items() if other == kind}
    bucket = max(waits, key=lambda name: waits[name], default="")
    return bucket, waits[bucket] / sum(waits.values()) if bucket else 0.0


def _bucket(summary: Summary, name: str) -> str:
    nbytes = summary.trace.buckets.get(name)
    if nbytes:
        return f"{name} ({_bytes(nbytes)})"
    return "messages handled between layers" if name == BETWEEN else f"{name} buckets at once"


def _half(nbytes: int) -> str:
    """Return half of `nbytes` in the form of --bucket-bytes, rounded down to a power of 2."""
    return _bytes(1 << max(10, (nbytes // 2).bit_length() - 1))


def _bytes(nbytes: int) -> str:
    unit, name = next(((u, n) for u, n in ((1 << 20, "M"), (1 << 10, "K")) if nbytes >= u), (1, ""))
    return f"{nbytes / unit:.3g}{name}"


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3g} ms"
