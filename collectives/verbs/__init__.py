"""Verbs by name: SCHEDULED have schedules of ours, the others of VERBS are the MPI library's."""

from __future__ import annotations

from collectives.errors import AlgorithmError
from collectives.verbs.allgather import ALLGATHER
from collectives.verbs.allreduce import ALLREDUCE
from collectives.verbs.bcast import BCAST
from collectives.verbs.library import ALLTOALL, BARRIER, GATHER, SCATTER
from collectives.verbs.reduce import REDUCE
from collectives.verbs.reduce_scatter import REDUCE_SCATTER
from collectives.verbs.verb import Slice, Verb, arrays_of, block_of, bounds_of, counts_of, even_bounds

__all__ = [
    "ALLGATHER",
    "ALLREDUCE",
    "ALLTOALL",
    "BARRIER",
    "BCAST",
    "GATHER",
    "REDUCE",
    "REDUCE_SCATTER",
    "SCATTER",
    "SCHEDULED",
    "VERBS",
    "Slice",
    "Verb",
    "arrays_of",
    "block_of",
    "bounds_of",
    "counts_of",
    "even_bounds",
    "scheduled",
]

VERBS: dict[str, Verb] = {
    verb.name: verb
    for verb in (REDUCE, BCAST, ALLREDUCE, REDUCE_SCATTER, ALLGATHER, ALLTOALL, GATHER, SCATTER, BARRIER)
}
SCHEDULED = {name: verb for name, verb in VERBS.items() if verb.is_scheduled}


def scheduled(name: str) -> Verb:
    """Return the verb of a schedule. Raise AlgorithmError for an unknown name."""
    if name not in SCHEDULED:
        raise AlgorithmError(f"unknown collective '{name}'; known are {', '.join(SCHEDULED)}")
    return SCHEDULED[name]
