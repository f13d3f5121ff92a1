"""Replays: iterations on the emulated cluster whose layers take given times, measured and simulated.

jobs/bench/overlap.py measures them, and has the runs of its rows.
"""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import lab
import overlap
from figure import Data
from narrow import narrowed

import scaffe
from collectives.tuning import TCP, Shape, shipped
from scaffe import models
from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster, simulate_iteration
from scaffe.simulation.choosing import by_table
from scaffe.simulation.layer_times import LayerTimes, of_device
from scaffe.tools.benchmark import layer_operations

SC_B, SC_OB, SC_OBR = "SC-B:auto", "SC-OB:auto", "SC-OBR:auto"
ALONE, TALKING = overlap.ALONE, overlap.TALKING["reduce-bcast"]
BUCKET, COLUMNS = "4M", ("ms", "sums", "rest")
EAGER, BURST = 60 << 10, 8 << 20  # bytes of a message, and of messages in a row


def replayed(profile: str, rows: str, net: str, batch: int, *more: str, talking: bool = False) -> Data:
    """Return what overlap.py's table has by row, and the layers' `rate`, operations a second.

    `ms` of an iteration; of rank 0's `sums`, the ms in which it waits for the sums of gradients, and `rest`, the
    others. `talking`: with the row of communicating alone.
    """
    program = str(lab.JOBS / "bench/overlap.py"), net, "--batch", str(batch), "--profile", profile, "--runs", rows
    how = "--iterations", "2", "--rounds", "3", *(() if talking else ("--no-talking",))
    text = lab.on_nodes(1, *program, *how, *more)
    columns = r"^(.{24}) *(\d+\.\d) +\d+\.\d +\d+\.\d +\d+% +(\d+\.\d) +(\d+\.\d) "
    names, *found = zip(*re.findall(columns, text, re.MULTILINE), strict=True)
    (rate,) = re.findall(r"profile flops:([\d.e+]+)", text)
    rows = [name.strip() for name in names]
    what = {name: dict(zip(rows, map(float, each), strict=True)) for name, each in zip(COLUMNS, found, strict=True)}
    return {"rate": float(rate), **what}


def links(chunk: int = EAGER, row: int = BURST) -> dict[str, float]:
    """Return what is measured of the links between two nodes, with messages of `chunk` bytes, `row` bytes in a row."""
    found: dict[str, float] = lab.last_json(lab.on_nodes(1, str(lab.JOBS / "bench/links.py"), str(chunk), str(row)))
    return found


@cache
def net(name: str, width: float = 1.0) -> scaffe.Net:
    """Return a model's net with a batch of 1 and weights of 0."""
    made = narrowed(models.get(name).train_val(batch=1, data="input"), width)
    for layer in made.layer:  # filling takes most of the time
        for part in (layer.convolution_param, layer.inner_product_param):
            part.ClearField("weight_filler")
    return scaffe.Net(made, phase=scaffe.TRAIN, compute=Compute(engine="reference"))


def rate_of(made: scaffe.Net, seconds: float) -> float:
    """Return the operations a second at which the passes of a net's batch take so long, backward twice the forward."""
    return 3 * sum(map(layer_operations, made.layers, made.tops)) / seconds


def run_of(row: str, bucket: str = BUCKET) -> Run:
    """Return the run of a row."""
    return replace(overlap.KNOWN[row], bucket_bytes=bucket)


def times_at(made: scaffe.Net, rate: float, batch: int, updating: float = 0.0) -> LayerTimes:
    """Return the layers' times as replayed: `rate` operations a second, backward twice the forward.

    `updating`: seconds of an update of all parameters.
    """
    pairs = zip(made.layers, made.tops, strict=True)
    forward = [batch * layer_operations(layer, top) / rate for layer, top in pairs]
    return LayerTimes(forward, [2 * t for t in forward], updating / (made.packed.nbytes / 4))


@cache
def device_times(name: str, cluster: str, computing: float) -> LayerTimes:
    """Return the layers' times on a described cluster's device, `computing` seconds in all: their proportions."""
    made, described = net(name), find_cluster(cluster)
    times = of_device(made, described)
    forward, backward = ([t * computing / times.computing for t in each] for each in (times.forward, times.backward))
    return replace(times, forward=forward, backward=backward, record_bytes=0.0)


def predicted(made: scaffe.Net, run: Run, nodes: int, links: dict[str, float], times: LayerTimes) -> float:
    """Return the simulated seconds of an iteration on emulated nodes, one rank each, by their links' numbers.

    `auto` takes what the shipped table says, as the ranks do.
    """
    cluster = find_cluster("cluster-a").with_(devices=1, **links)
    auto = by_table(shipped(), Shape(nodes, 1, TCP))
    return simulate_iteration(made, nodes, cluster, run, times=times, choose=auto).seconds


def predicted_row(found: Data, row: str, made: scaffe.Net, nodes: int, batch: int, bucket: str = BUCKET) -> float:
    """Return the simulated ms of a row, by a replay's `rate` and its `links`.

    An update takes what the layers leave of computing alone.
    """
    computing = times_at(made, found["rate"], batch).computing
    times = times_at(made, found["rate"], batch, max(0.0, 1e-3 * found["ms"][ALONE] - computing))
    return 1e3 * predicted(made, run_of(row, bucket), nodes, found["links"], times)
