"""scaffe models: list the models, or print one as prototxt."""

from __future__ import annotations

import argparse
from typing import Any

from google.protobuf import text_format

from scaffe.commands.gflags import Parser
from scaffe.commands.parser import add_command
from scaffe.errors import ScaffeError
from scaffe.models import DATA, MODELS, Model, get

RANK = 32


def add(top: Parser) -> None:
    """Add `models`."""
    text = "List well-known nets, or print one's train_val, deploy or solver prototxt."
    command = add_command(top, "models", _run, text)
    command.add_argument("name", nargs="?", metavar="NAME", help="of the list; without it, the list")
    command.flag("deploy", action="store_true", help="the net that classifies, in place of train_val")
    command.flag("solver", action="store_true", help="the solver, in place of train_val")
    command.flag("batch", type=int, metavar="N", help="samples in a training batch, or in deploy's input (default 1)")
    add_size_flags(command)
    command.flag("data", choices=DATA, help="of train_val: database files (default), Input layers, random DummyData")
    command.flag("net", metavar="FILE", help="what the solver trains (default train_val.prototxt)")


def add_size_flags(command: Parser) -> None:
    """Add the flags of a model's sizes."""
    command.flag("classes", type=int, metavar="N", help="number of classes, or words")
    command.flag(
        "sizes",
        type=_sizes,
        metavar="NAME=N,...",
        help="of layers, steps, ...; a comment of the prototxt has them",
    )


def _sizes(text: str) -> dict[str, int]:
    """Return the sizes by name."""
    pairs = [part.partition("=") for part in text.split(",")]
    if not all(name and size.isdecimal() for name, _, size in pairs):
        raise argparse.ArgumentTypeError(f"expected NAME=N,..., such as hidden=32,layers=2, got '{text}'")
    sizes = {name: int(size) for name, _, size in pairs}
    if len(sizes) < len(pairs):
        raise argparse.ArgumentTypeError(f"expected each size once, got '{text}'")
    return sizes


def _run(a: argparse.Namespace) -> int:
    if a.deploy and a.solver:
        raise ScaffeError("--deploy and --solver say two things; give one of them")
    kind = "deploy" if a.deploy else "solver" if a.solver else "train_val" if a.name else "the list"
    sized = ("batch", "classes", "sizes")
    takes = {"deploy": sized, "solver": ("net",), "train_val": (*sized, "data")}
    given = {name: getattr(a, name) for name in (*sized, "data", "net") if getattr(a, name) is not None}
    for name in given:
        if name not in takes.get(kind, ()):
            raise ScaffeError(f"--{name} says nothing about {kind}; see scaffe models --help")
    if a.name is None and (a.deploy or a.solver):
        raise ScaffeError(f"name a model; known models: {' '.join(MODELS)}")
    sizes = given.pop("sizes", {})
    print(_text(get(a.name).sized(**sizes), kind, given) if a.name else _table(), end="")
    return 0


def _text(model: Model, kind: str, options: dict[str, Any]) -> str:
    """Return a prototxt, with a comment on where it comes from."""
    lines = [f"# {model.title}: {model.paper}."]
    if kind != "solver" and model.sizes:
        lines.append(f"# Sizes: {','.join(f'{name}={size}' for name, size in model.sizes.items())}")
    if kind == "train_val" and options.get("data", "files") == "files":
        lines.append("# The paths of sources and means are relative to the folder that scaffe is started in.")
    message = getattr(model, kind)(**options)
    return "\n".join([*lines, text_format.MessageToString(message)])


def _table() -> str:
    rows = [("NAME", "PARAMETERS", "INPUT", "CLASSES", "PAPER")]
    rows += [
        (model.name, f"{model.parameters:,}", " x ".join(map(str, model.shape)), str(model.classes), model.paper)
        for model in MODELS.values()
    ]
    name, count, size, classes = (max(len(row[i]) for row in rows) for i in range(4))
    return "".join(f"{r[0]:{name}}  {r[1]:>{count}}  {r[2]:>{size}}  {r[3]:>{classes}}  {r[4]}\n" for r in rows)
