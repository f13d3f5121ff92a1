"""Tests: run a solver's test nets, and log the means of their outputs."""

from __future__ import annotations

from scaffe.monitor.log import log
from scaffe.parallel.detections import detection_scores
from scaffe.parallel.evaluate import BatchResult, means, run_batches
from scaffe.training import display
from scaffe.training.job import Job
from scaffe.training.monitor import Unwatched
from scaffe.training.parts import Parts
from scaffe.training.patience import best_path


def is_due(job: Job, parts: Parts) -> bool:
    """Return whether the test nets are run before this iteration."""
    return bool(parts.tests) and job.iter % job.param.test_interval == 0


def run_one(job: Job, parts: Parts, k: int) -> list[BatchResult]:
    """Return all batches of test net `k`, whose layers the ranks' records name meanwhile. Collective."""
    parts.team.begin(job.iter, k + 1)
    return run_batches(parts.tests[k], job.param.test_iter[k], job.world, parts.team)


def run(job: Job, parts: Parts, monitor: Unwatched) -> None:
    """Run all test nets and log the means of their outputs, exact over the ranks. Collective."""
    parts.propagate.sync()
    for k, nets in enumerate(parts.tests):
        log.info("Iteration %d, Testing net (#%d)", job.iter, k)
        batches = run_one(job, parts, k)
        mean = means(batches, detection_scores(nets[0], job.param.ap_version, job.param.show_per_class_result))
        if job.param.test_compute_loss:
            log.info("Test loss: %.6g", mean.loss)
        display.outputs("Test", nets[0], mean.outputs)
        monitor.tested(job.iter, k, mean.outputs)
        if not k and job.patience.take(job.iter, mean.loss, lambda: _keep_best(job, parts)):
            parts.losses.requests.add("stop")
    job.world.record.begin(job.iter)
    job.tests_done += 1


def _keep_best(job: Job, parts: Parts) -> str:
    """Write the weights as the best so far; return their path. Collective."""
    return job.world.on_root(lambda: parts.snapshots.save_best(best_path(job.param)))
