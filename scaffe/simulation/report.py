"""Report: a simulated iteration as the lines that `scaffe simulate` prints, and as a timeline."""

from __future__ import annotations

import json
import os
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict

from scaffe.files.atomic import write_atomically
from scaffe.simulation.clusters import DescribedCluster
from scaffe.simulation.result import Iteration, Messages
from scaffe.timeline import trace
from scaffe.version import __version__


def lines(one: Iteration, cluster: DescribedCluster) -> Iterator[str]:
    """Iterate over the lines that describe an iteration."""
    yield f"{one.ranks} rank(s) of {cluster.name}, {one.batch} images each, {one.run.workflow}: {_ms(one.seconds)}"
    yield f"{one.rate:.4g} images/s; alone a rank takes {_ms(one.computing)}, {one.computing / one.seconds:.0%} of it"
    yield f"{'forward':<13}{_ms(one.forward):>12}"
    yield f"{'backward':<13}{_ms(one.backward):>12}"
    yield f"{'update':<13}{_ms(one.update):>12}"
    if one.ranks > 1:
        yield f"{'':<13}{'busy':>12}{'exposed':>12}{'hidden':>12}{'':>7}  exposed on the worst rank"
        yield _messages("propagation", one.propagation)
        yield _messages("aggregation", one.aggregation)
        yield from _chosen(one)
    yield f"Described: {cluster.about}"
    devices = cluster["nodes"] * cluster["devices"]
    if one.ranks > devices:
        yield f"It has {devices:.0f} devices; the other {one.ranks - devices:.0f} are on more nodes of the same kind"
    by_origin: defaultdict[str, list[str]] = defaultdict(list)
    for name, quantity in cluster.quantities.items():
        by_origin[quantity.origin].append(name)
    yield "Numbers: " + "; ".join(f"{origin}: {', '.join(names)}" for origin, names in by_origin.items())


def _messages(name: str, times: Messages) -> str:
    share = f"{times.hidden / times.busy:.0%}" if times.busy else "-"
    cells = f"{_ms(times.busy):>12}{_ms(times.exposed):>12}{_ms(times.hidden):>12}{share:>7}"
    return f"{name:<13}{cells}  {_ms(times.worst)}"


def _chosen(one: Iteration) -> Iterator[str]:
    """Iterate over a line for each collective: its messages' sizes by algorithm."""
    yield f"{len(one.buckets)} bucket(s), {one.nbytes} bytes"
    by_choice: defaultdict[str, list[int]] = defaultdict(list)
    for (what, nbytes), choice in one.chosen.items():
        by_choice[f"{what} by {choice}"].append(nbytes)
    for how, sizes in by_choice.items():
        yield f"{how}: {min(sizes)} to {max(sizes)} bytes"


def write_timeline(one: Iteration, path: str | os.PathLike[str]) -> None:
    """Write the spans, as `scaffe train --timeline` does. Raise SnapshotError if the file can't be written."""
    start = min(span.begin for spans in one.spans.values() for span in spans)
    parts = []
    for rank, spans in one.spans.items():
        found = trace.events(spans, rank, one.cluster, -start)
        parts.append(",\n".join(json.dumps(event) for event in found))
    other = {"program": f"scaffe {__version__}, simulated", "ranks": one.ranks, "buckets": dict(one.buckets)}
    write_atomically(path, [*trace.document(parts, {**other, "run": asdict(one.run)})])


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.4g} ms"
