"""Arguments: what Net is called with, as pycaffe and scaffe allow it, made one form."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from scaffe import engines
from scaffe.compute import Compute
from scaffe.context import TEST, TRAIN, Context
from scaffe.defaults import get_defaults
from scaffe.devices.choices import Choices
from scaffe.engine import Engine
from scaffe.errors import CallError, NetError
from scaffe.layers.layer import check_types
from scaffe.net.graph import asked_state, filter_layers, insert_splits
from scaffe.proto import NetParameter, numbers, strings
from scaffe.proto.files import read_net
from scaffe.setting import check_record

Model = str | os.PathLike[str] | NetParameter


def context_and_engine(
    context: Context | None, engine: str | Engine | None, compute: Compute | None, phase: object, python_layers: bool
) -> tuple[Context, Engine]:
    """Return a net's context, if it is not given one with the default seed, and its engine.

    Raise CallError for arguments that say two things, and for what is no phase.
    """
    if compute is not None:
        check_record("compute", compute, Compute)
    if context is not None:
        return context, engines.of(engine, compute, context.compute)
    which, made = checked_phase(phase), engines.of(engine, compute)
    found = replace(made.compute, allow_python_layers=made.compute.allow_python_layers or python_layers)
    choices = Choices(found.plan, found.plan_seconds)
    return Context(which, get_defaults().seed or 0, compute=found, choices=choices), made


def positional(args: Sequence[Any], named: Mapping[str, object]) -> dict[str, Any]:
    """Return positional arguments by name. Raise CallError for one too many, or one that is also in `named`."""
    paths = [isinstance(arg, (str, os.PathLike)) for arg in args[:2]]
    names = ["phase", "level", "stages", "weights"]
    if any(paths):  # Net(file, weights, phase), or the other way round
        names = ["weights", "phase"] if paths[0] else ["phase", "weights"]
    twice = [name for name in names[: len(args)] if named[name] is not None]
    if len(args) > len(names) or twice:
        again = "".join(f"; '{name}' twice" for name in twice)
        raise CallError(f"a net takes a file, {', '.join(names)}; got {len(args)} of these{again}")
    return dict(zip(names, args, strict=False))


def checked_model(file: object, model: object) -> Model:
    """Return what a net is built from. Raise CallError for what is no path and no NetParameter."""
    found = model if file is None else file
    if isinstance(found, str) and "\n" in found:
        raise CallError("a net needs the path of a prototxt, got its text: write it to a file, or give a NetParameter")
    if not isinstance(found, (str, os.PathLike, NetParameter)):
        raise CallError(f"a net needs network_file, the path of a prototxt or a NetParameter, got {found!r}")
    return found


def checked_phase(phase: object) -> int:
    """Return a phase. Raise CallError for what is none."""
    if phase is None:
        raise CallError("a net needs a phase: scaffe.TRAIN or scaffe.TEST")
    if phase not in (TRAIN, TEST):
        raise CallError(f"phase must be scaffe.TRAIN ({TRAIN}) or scaffe.TEST ({TEST}), got {phase!r}")
    return TRAIN if phase == TRAIN else TEST


def wanted_layers(model: Model, phase: int, level: int | None, stages: Sequence[str]) -> NetParameter:
    """Return the layers that a phase, level and stages select, with Splits inserted. Raise NetError, PrototxtError."""
    param = model if isinstance(model, NetParameter) else read_net(model)
    numbers.check(param, NetError)
    strings.check(param, NetError)
    kept = filter_layers(param, asked_state(param, phase, level, stages))
    if not isinstance(model, NetParameter):
        check_types(kept.layer, model)
    return insert_splits(kept, param)
