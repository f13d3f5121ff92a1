"""Iterations: what surrounds an iteration of training: other instances, functions of users, times, displays."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

from scaffe.monitor.log import log
from scaffe.monitor.spans import ITERATION, LOSS, WAIT
from scaffe.net.debug_info import is_shown
from scaffe.parallel.iteration import iterate
from scaffe.solvers import lr_policy
from scaffe.training import display
from scaffe.training.job import Job
from scaffe.training.monitor import Unwatched
from scaffe.training.parts import Parts
from scaffe.training.recovery.choose import Recovery


def run(
    job: Job, parts: Parts, recovery: Recovery, monitor: Unwatched, rebuild: Callable[[], object], ends: bool
) -> None:
    """Run an iteration; after one that `ends` a step all ranks have the root's parameters. Collective.

    `rebuild()` builds nets anew where the number of instances changes.
    """
    parts.arrange(rebuild)
    recovery.begin_iteration()
    if parts.called is not None:
        parts.called.start()
        recovery.called_functions()
    parts.team.begin(job.iter)
    monitor.begin(parts)
    job.rate()  # raises on all ranks where there is none, also on ranks that update nothing
    parts.net.debug_info = job.param.debug_info and job.is_display_due(job.iter)
    parts.update.lines.begin(parts.net.debug_info and (parts.update.is_shared or is_shown()))
    run, start, timeline = iterate, time.perf_counter(), parts.timeline
    agree: Callable[..., Any] = partial(parts.losses.take, iteration=job.iter, at_once=recovery.tells_at_once)
    if timeline:
        run = timeline.timed(ITERATION, job.iter, run)
        agree = timeline.timed(WAIT, 0, agree, LOSS)
    statistics, agree = recovery.whole(agree)
    with parts.team.keep_forms(persistent=not parts.lends_parameters()):
        run(parts.workflow, statistics, job.param.iter_size, agree, job.world.record)
    parts.update.lines.tell()
    recovery.end_iteration()
    parts.rule.look()
    if ends:
        parts.propagate.sync()
    seconds = time.perf_counter() - start
    for decided in (parts.workflow.took(), job.auto_instances.took(seconds), parts.trial.took(seconds)):
        if decided:
            log.info("%s", decided)
    parts.update.follow(parts.workflow)


def tell(job: Job, parts: Parts, recovery: Recovery, monitor: Unwatched) -> None:
    """Display and measure the iteration that is done, where that is due. Collective."""
    last = job.iter - 1
    displays, measures = job.is_display_due(last), monitor.is_due(last)
    if displays or measures:
        parts.losses.settle()
        outputs = recovery.outputs()
    if displays:
        rate = lr_policy.rate(job.param, last)
        job.shown = display.iteration(parts.net, last, parts.losses.mean, outputs, rate, job.shown)
    if measures:
        monitor.measure(parts, last, outputs)
    job.told = job.iter
