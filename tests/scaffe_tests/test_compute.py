"""Compute: its values are checked where it is made."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf import text_format

import scaffe
from scaffe import engines
from scaffe.compute import Compute
from scaffe.context import Context
from scaffe.errors import CallError, EngineError, LaunchError, ScaffeError
from scaffe.proto import NetParameter

INPUT = text_format.Parse("name: 'first' layer { name: 'x' type: 'Input' top: 'x' }", NetParameter())


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"engine": "mkl"}, EngineError, "unknown engine 'mkl'; known engines: auto reference onednn"),
        ({"device": "tpu"}, ScaffeError, "unknown device 'tpu'; known devices: auto cpu cuda"),
        ({"numbers": "fp8"}, EngineError, "unknown kind of number 'fp8'; known ones: float32 tf32 bf16"),
        ({"graphs": "maybe"}, EngineError, "graphs must be one of auto on off, got 'maybe'"),
        ({"numbers": None}, ScaffeError, "numbers: unknown 'None'; known: float32"),
        ({"allow_python_layers": "false"}, ScaffeError, "allow_python_layers must be true or false, got 'false'"),
        ({"threads": "4"}, ScaffeError, "threads must be a whole number, got '4'"),
        ({"threads": -1}, LaunchError, "threads must be 0 to "),
        ({"plan_seconds": -1}, ScaffeError, "plan_seconds must be 0 or more, got -1"),
        ({"workspace_bytes": -1}, ScaffeError, "workspace_bytes must be 0 or more, got -1"),
        ({"workspace_bytes": float("nan")}, ScaffeError, "workspace_bytes must be 0 or more, got nan"),
    ],
)
def test_a_wrong_value_is_an_error(fields: dict[str, Any], error: type[ScaffeError], said: str) -> None:
    with pytest.raises(error) as caught:
        Compute(**fields)
    assert str(caught.value).startswith(said)


def test_a_profile_stands_in_place_of_a_number_format() -> None:
    assert Compute(numbers="replay:lenet.json").profile == "lenet.json"
    assert Compute(numbers="bf16").profile == ""


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"threads": 2}, "threads= has moved: write compute=Compute(threads=...)"),
        ({"numbers": "bf16"}, "numbers= has moved: write compute=Compute(numbers=...)"),
        ({"compute": "bf16"}, "compute= takes a record, Compute(...), got 'bf16'"),
    ],
)
def test_an_earlier_keyword_of_a_net_is_an_error_with_the_new_one(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ScaffeError) as caught:
        scaffe.Net(NetParameter(), scaffe.TEST, **given)
    assert str(caught.value) == said


def test_a_net_s_engine_alone_takes_the_rest_from_the_defaults() -> None:
    before = scaffe.set_defaults(compute=Compute(threads=3, deterministic=True))
    try:
        compute = scaffe.Net(INPUT, scaffe.TEST, engine="reference").context.compute
    finally:
        scaffe.set_defaults(**vars(before))
    assert compute == Compute(engine="reference", threads=3, deterministic=True)


@pytest.mark.parametrize("other", [{"compute": Compute()}, {"context": Context(scaffe.TEST)}])
def test_an_engine_beside_a_record_that_has_one_is_an_error(other: dict[str, Any]) -> None:
    with pytest.raises(CallError) as caught:
        scaffe.Net(NetParameter(), phase=scaffe.TEST, engine="onednn", **other)
    said = "engine='onednn' beside a compute or a context; write compute=Compute(engine='onednn')"
    assert str(caught.value) == said


def test_an_engine_that_is_created_brings_its_compute_and_computes_one_net() -> None:
    engine = engines.create(Compute("reference", deterministic=True))
    net = scaffe.Net(INPUT, scaffe.TEST, engine=engine, allow_python_layers=True)
    assert net.engine is engine is net.context.engine
    assert net.context.compute == Compute("reference", deterministic=True, allow_python_layers=True)
    with pytest.raises(CallError, match=r"^an engine computes one net, and this one has net 'first'; create another$"):
        scaffe.Net(INPUT, scaffe.TEST, engine=engine)
    with pytest.raises(CallError, match=r"^an engine has its own compute; give it to engines.create alone$"):
        scaffe.Net(INPUT, scaffe.TEST, engine=engines.create(), compute=Compute())


def test_an_engine_serves_another_try_where_a_net_could_not_be_built() -> None:
    engine, wrong = engines.create(Compute()), NetParameter(name="wrong")
    wrong.layer.add(name="y", type="ReLU", bottom=["nowhere"], top=["y"])
    with pytest.raises(ScaffeError, match="nowhere"):
        scaffe.Net(wrong, scaffe.TEST, engine=engine)
    assert scaffe.Net(INPUT, scaffe.TEST, engine=engine).engine is engine


def test_an_engine_that_is_created_computes_a_context_s_net() -> None:
    engine, context = engines.create(Compute("reference")), Context(scaffe.TEST, seed=7, compute=Compute("reference"))
    net = scaffe.Net(INPUT, context=context, engine=engine)
    assert net.engine is engine is context.engine and net.context is context


def test_an_engine_that_there_is_not_is_an_error() -> None:
    with pytest.raises(ScaffeError, match=r"engine.*'mkl'.*onednn"):
        scaffe.Net(NetParameter(), scaffe.TEST, engine="mkl")


def test_a_net_for_a_gpu_needs_one() -> None:
    with pytest.raises(EngineError, match=r"^device cuda, but the net has no GPU; see scaffe\.devices\.gpu\.choose$"):
        scaffe.Net(NetParameter(), scaffe.TEST, compute=Compute(device="cuda"))
