"""Replays: iterations on the emulated cluster whose layers take given times; jobs/bench/overlap.py measures them."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache

import lab
import overlap
from figure import Data
from narrow import narrowed

import scaffe
from scaffe import models
from scaffe.compute import Compute
from scaffe.parallel.run import Run
from scaffe.simulation import find_cluster
from scaffe.simulation.layer_times import LayerTimes, of_device

SC_B, SC_OB, SC_OBR = "SC-B:auto", "SC-OB:auto", "SC-OBR:auto"
ALONE = overlap.ALONE
BUCKET, COLUMNS = "4M", ("ms", "sums", "rest")


def replayed(profile: str, rows: str, net: str, batch: int, *more: str) -> Data:
    """Return what overlap.py's table has by row, and the layers' `rate`, operations a second.

    `ms` of an iteration; of rank 0's `sums`, the ms in which it waits for the sums of gradients, and `rest`, the
    others.
    """
    program = str(lab.JOBS / "bench/overlap.py"), net, "--batch", str(batch), "--profile", profile, "--runs", rows
    text = lab.on_nodes(1, *program, "--iterations", "2", "--rounds", "3", "--no-talking", *more)
    columns = r"^(.{24}) *(\d+\.\d) +\d+\.\d +\d+\.\d +\d+% +(\d+\.\d) +(\d+\.\d) "
    names, *found = zip(*re.findall(columns, text, re.MULTILINE), strict=True)
    (rate,) = re.findall(r"profile flops:([\d.e+]+)", text)
    rows = [name.strip() for name in names]
    what = {name: dict(zip(rows, map(float, each), strict=True)) for name, each in zip(COLUMNS, found, strict=True)}
    return {"rate": float(rate), **what}


@cache
def net(name: str) -> scaffe.Net:
    """Return a model's net with a batch of 1 and weights of 0."""
    made = narrowed(models.get(name).train_val(batch=1, data="input"), 1.0)
    for layer in made.layer:  # filling takes most of the time
        for part in (layer.convolution_param, layer.inner_product_param):
            part.ClearField("weight_filler")
    return scaffe.Net(made, phase=scaffe.TRAIN, compute=Compute(engine="reference"))


def run_of(row: str) -> Run:
    """Return the run of a row."""
    return replace(overlap.KNOWN[row], bucket_bytes=BUCKET)


@cache
def device_times(name: str, cluster: str, computing: float) -> LayerTimes:
    """Return the layers' times on a described cluster's device, `computing` seconds in all: their proportions."""
    times = of_device(net(name), find_cluster(cluster))
    forward, backward = ([t * computing / times.computing for t in each] for each in (times.forward, times.backward))
    return replace(times, forward=forward, backward=backward, record_bytes=0.0)
