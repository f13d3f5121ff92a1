"""scaffe fine-tune: from a folder of pictures to a net that classifies them."""

from __future__ import annotations

import argparse
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from readers.image_reader import under
from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command, add_net_flags, add_settings
from scaffe.commands.running import log_device, on_devices
from scaffe.compute import Compute
from scaffe.devices.gpu import Gpu
from scaffe.engines import create
from scaffe.errors import ScaffeError
from scaffe.fine_tuning import plan as plans
from scaffe.fine_tuning import report
from scaffe.fine_tuning.bundle import WEIGHTS, open_classifier
from scaffe.fine_tuning.plan import Asked, Planned
from scaffe.monitor.log import GlogFormatter, log
from scaffe.parallel.world import World
from scaffe.pictures import io
from scaffe.tools.log_curves import named_runs
from scaffe.tools.plot_log import plot
from scaffe.training.patience import best_path
from scaffe.training.settings import Settings, titles
from scaffe.training.signals import Signals
from scaffe.training.solver import Solver

RANK = 14
PATIENCE = 5
AT_ONCE = 50  # pictures that are scored
LOG, CURVES, CONFUSION = "train.log", "curves.png", "confusion.png"


def add(top: Parser) -> None:
    """Add `fine-tune`."""
    text = "Train a net to classify the pictures of a folder, on all ranks; scaffe classify then takes the result."
    command = add_command(top, "fine-tune", _run, text)
    told = "a folder that has a folder of pictures for each class, or a list of lines FILE CLASS"
    command.add_argument("folder", metavar="FOLDER", help=told)
    told = "prototxt, or name of scaffe models, of the net to begin with (default: a small net for these pictures)"
    command.flag("from", dest="net", metavar="NET", help=told)
    command.flag("weights", metavar="FILE", help=".caffemodel of that net; the layer of the classes begins anew")
    command.flag("out", default="fine-tuned", metavar="DIR", help="folder of the result (default fine-tuned)")
    command.flag("held-out", type=float, default=0.2, metavar="X", help="share of pictures to test on (default 0.2)")
    command.flag("epochs", type=int, metavar="N", help="how often all pictures are trained on, at most")
    command.flag("batch", type=int, metavar="N", help="pictures of a batch, of all ranks together")
    command.flag("rate", type=float, metavar="X", help="learning rate")
    command.flag("seed", type=int, default=1, metavar="N", help="of division, fillers and order (default 1)")
    add_net_flags(command)
    for record in titles():
        if record is not Compute:
            add_settings(command, record)


def _run(a: argparse.Namespace) -> int:
    return on_devices(lambda world, settings: _fine_tune(world, a, settings), a)


def _fine_tune(world: World, a: argparse.Namespace, settings: Settings) -> int:
    asked = Asked(a.folder, a.out, a.net, a.weights, a.held_out, a.seed, a.batch, a.rate, a.epochs)
    plan: Planned = world.on_root(lambda: plans.write(asked, world.size))
    if a.patience is None:
        settings = replace(settings, run=replace(settings.run, patience=PATIENCE))
    log_device(world.gpu, settings.compute.device)
    with Signals() as signals, _logged(world, os.path.join(a.out, LOG)):
        solver = Solver(plan.solver, world=world, **vars(settings))
        solver.asked = signals.take
        try:
            if plan.weights:
                solver.copy_weights([plan.weights])
            solver.solve()
        finally:
            solver.checkpoints.close()
            solver.monitor.close()
        best = best_path(solver.param)
        solver.close()
    world.on_root(lambda: _finish(a.out, plan, best, settings.compute, world.gpu))
    return 0


@contextmanager
def _logged(world: World, path: str) -> Iterator[None]:
    """Write the root's log to a file too."""
    if not world.is_root:
        yield
        return
    handler = logging.FileHandler(path, "w")
    handler.setFormatter(GlogFormatter())
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        handler.close()


def _finish(out: str, plan: Planned, best: str, compute: Compute, chosen: Gpu | None) -> None:
    """Keep the best weights, score the held-out pictures as scaffe classify does, and draw. On the root alone."""
    if not os.path.exists(best):
        raise ScaffeError("training ended before its first test: there are no weights to keep")
    weights = os.path.join(out, WEIGHTS)
    shutil.move(best, weights)
    found = _found(out, plan, compute, chosen)
    counts = report.confusions([one.label for one in plan.held_out], found, len(plan.classes))
    try:
        plot(named_runs([os.path.join(out, LOG)], ["this run"]), os.path.join(out, CURVES))
        report.draw(counts, plan.classes, os.path.join(out, CONFUSION))
    except ScaffeError as error:
        log.warning("%s and %s are not drawn: %s", CURVES, CONFUSION, error)
    for line in report.lines(counts, plan.classes):
        print(line)
    print(f"The classifier is in {out}; use it by: scaffe classify {out} PICTURE...")


def _found(out: str, plan: Planned, compute: Compute, chosen: Gpu | None) -> list[int]:
    """Return the class of each held-out picture, by the deploy net."""
    net, gray = open_classifier(out, create(compute, chosen))
    classes: list[int] = []
    for start in range(0, len(plan.held_out), AT_ONCE):
        files = [under(plan.root, one.path) for one in plan.held_out[start : start + AT_ONCE]]
        scores = net.predict([io.load_image(file, not gray) for file in files], oversample=False)
        classes += scores.argmax(1).tolist()
    return classes
