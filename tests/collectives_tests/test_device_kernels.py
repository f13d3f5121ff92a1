"""The kernels of device arrays compile, all of them, by NVIDIA's compiler; no GPU is needed for that."""

import ctypes
import importlib.util
from ctypes.util import find_library
from pathlib import Path

import pytest

from collectives.device import kernels
from collectives.operations import OPERATIONS, TYPES

ARCHITECTURE = "sm_80"  # the oldest that is of interest; newer ones take all that it does
MISSING = "no NVRTC: pip install nvidia-cuda-nvrtc (58 MB), or a CUDA toolkit"


@pytest.fixture(scope="module")
def compiled():
    """What the compiler says of all kernels, and their code. NVRTC is of NVIDIA's package or of a toolkit."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = [str(path) for root in roots for path in sorted(root.glob("*/lib/libnvrtc.so.*"))]
    name = next(iter(found), find_library("nvrtc"))
    if name is None:
        pytest.skip(MISSING)
    nvrtc, program = ctypes.CDLL(name), ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), kernels.source().encode(), b"kernels.cu", 0, None, None) == 0
    flags = [flag.encode() for flag in (*kernels.FLAGS, f"--gpu-architecture={ARCHITECTURE}")]
    nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    log = text_of(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    return log, "" if "error" in log else text_of(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def text_of(program, ask_size, ask):
    size = ctypes.c_size_t()
    ask_size(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    ask(program, text)
    return text.value.decode()


def test_every_kernel_compiles_without_a_warning(compiled):
    log, code = compiled
    assert log == ""
    assert [name for name in kernels.names() if f".entry {name}(" not in code] == []


def test_half_precision_is_added_in_single(compiled):
    body = compiled[1].partition(".entry sum_float16(")[2].partition("ret;")[0]
    assert sorted({"cvt.f32.f16", "add.rn.f32", "cvt.rn.f16.f32"} - set(body.split())) == []


def test_there_is_a_kernel_for_every_operation_and_type():
    pairs = {f"{op.name}_{dtype}" for op in OPERATIONS.values() for dtype in TYPES if not op.divided}
    divided = {f"divide_{dtype}" for dtype in TYPES if dtype.kind == "f"}
    assert {*pairs, *(f"all_{pair}" for pair in pairs), *divided} == set(kernels.names())
