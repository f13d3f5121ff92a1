"""Best, driven: estimates against 1,024 driven ranks of each described cluster, where computing hides no error.

A rank computes as long as all its messages take, by the closed forms: with less nothing hides, with more all does.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from best_designs import COUNTS, GOOGLENET, NUMA, PARAX, SINGLE, SWCAFFE, Design, error_of, machine, net
from best_timed import NDR

from scaffe.parallel.run import AUTO, Run
from scaffe.simulation import simulate_iteration
from scaffe.simulation.closed_forms import CHUNKS, EXCHANGES, TREES, ClosedForms
from scaffe.simulation.estimate import estimate, faster_computing
from scaffe.simulation.layer_times import of_device

RANKS = COUNTS[0]
OBR = Run("SC-OBR", reduce="auto", bucket_bytes="16M")
STAGED = Run("SC-OBR", "allreduce", reduce="auto", bucket_bytes="16M")
WHOLE = Run("SC-B", "allreduce", reduce="auto")
HALVED = replace(WHOLE, reduce="halving", chunk_bytes=CHUNKS[-1])


@dataclass(frozen=True)
class Case:
    """A design's net on a cluster, and a run that 1,024 driven ranks take seconds for."""

    design: Design
    cluster: str
    run: Run


CASES = (
    Case(GOOGLENET, NDR, OBR),
    Case(GOOGLENET, NDR, STAGED),
    Case(GOOGLENET, GOOGLENET.cluster, OBR),
    Case(NUMA, PARAX.cluster, HALVED),  # the ring that is faster there, and ResNet-50's layers, take minutes
    Case(SINGLE, SINGLE.cluster, STAGED),
    Case(SWCAFFE, SWCAFFE.cluster, WHOLE),
)


@cache
def driven(case: Case) -> tuple[float, float, float]:
    """Return the milliseconds of an iteration by closed forms, and of driven ranks, and the error that is stated."""
    made, cluster = net(case.design.net, 1), machine(case.design, case.cluster)
    forms = ClosedForms(cluster.links, RANKS, TREES + EXCHANGES if case.run.reduce == AUTO else (case.run.reduce,))
    whats = ("reduce", "bcast") if case.run.sync == "reduce-bcast" else ("allreduce",)
    messages = sum(forms.cost(what, made.packed.nbytes).seconds for what in whats)
    times = replace(of_device(made, cluster), record_bytes=0.0)
    times = faster_computing(times, times.computing / messages)
    form = estimate(made, cluster, case.run, times, forms)
    real = simulate_iteration(made, RANKS, cluster, case.run, times=times)
    return 1e3 * form.seconds, 1e3 * real.seconds, error_of(form, cluster)
