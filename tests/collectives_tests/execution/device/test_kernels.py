"""The kernels of device arrays compile, all of them, by NVIDIA's compiler; no GPU is needed for that."""

import re

import nvrtc
import pytest

from collectives.codecs import CODECS
from collectives.execution.device import kernels
from collectives.execution.operations import OPERATIONS, TYPES

ARCHITECTURES = "sm_80", "sm_90", "sm_100"


def compiled_for(architecture):
    """Return what the compiler says of all kernels, and their code."""
    return nvrtc.compiled(nvrtc.find(), kernels.source(), architecture, kernels.FLAGS)


@pytest.fixture(scope="module")
def compiled():
    """The same for the oldest that is of interest."""
    return compiled_for(ARCHITECTURES[0])


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_kernel_compiles_without_a_warning(architecture):
    log, code = compiled_for(architecture)
    assert log == ""
    assert [name for name in kernels.names() if f".entry {name}(" not in code] == []
    assert ".local" not in code  # arrays of a thread lie in registers


def test_half_precision_is_added_in_single(compiled):
    body = compiled[1].partition(".entry sum_float16(")[2].partition("ret;")[0]
    assert sorted({"cvt.f32.f16", "add.rn.ftz.f32", "cvt.rn.f16.f32"} - set(body.split())) == []


def test_there_is_a_kernel_for_every_operation_and_type():
    pairs = {f"{op.name}_{dtype}" for op in OPERATIONS.values() for dtype in TYPES if not op.divided}
    divided = {f"divide_{dtype}" for dtype in TYPES if dtype.kind == "f"}
    coded = {f"decode_{op.name}_{name}" for op in OPERATIONS.values() for name in CODECS if not op.divided}
    coded |= {f"{what}_{name}" for what in ("encode", "decode") for name in CODECS}
    assert {*pairs, *(f"all_{pair}" for pair in pairs), *divided, *coded} == set(kernels.names())


def test_the_reduces_addition_moves_16_bytes_at_once(compiled):
    for name in ("sum_float32", "all_sum_float32"):
        body = compiled[1].partition(f".entry {name}(")[2].partition("\n}")[0]
        moved = re.findall(r"\b(ld|st)\.(?:global\.)?v4\.", body)  # of pointers out of a table no space is known
        assert {*moved} == {"ld", "st"}, name
