"""Compute: its values are checked where it is made."""

from __future__ import annotations

from typing import Any

import pytest

from scaffe.compute import Compute
from scaffe.errors import EngineError, LaunchError, ScaffeError


@pytest.mark.parametrize(
    ("fields", "error", "said"),
    [
        ({"engine": "mkl"}, EngineError, "unknown engine 'mkl'; known engines: auto reference onednn"),
        ({"device": "tpu"}, ScaffeError, "unknown device 'tpu'; known devices: auto cpu cuda"),
        ({"numbers": "fp8"}, EngineError, "unknown kind of number 'fp8'; known ones: float32 tf32 bf16"),
        ({"graphs": "maybe"}, EngineError, "graphs must be one of auto on off, got 'maybe'"),
        ({"threads": -1}, LaunchError, "threads must be 0 to "),
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
