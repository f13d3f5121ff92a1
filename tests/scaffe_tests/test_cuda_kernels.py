"""The CUDA engine's kernels compile, by NVIDIA's compiler, for every GPU that is of interest; none is needed."""

import ctypes
import importlib.util
import re
from ctypes.util import find_library
from pathlib import Path

import pytest

from scaffe.engines.cuda.engine import FLAGS, files, source

ARCHITECTURES = "sm_75", "sm_80", "sm_90"
DECLARED = re.compile(r"^KERNEL (\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def nvrtc():
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = [str(path) for root in roots for path in sorted(root.glob("*/lib/libnvrtc.so.*"))]
    name = next(iter(found), find_library("nvrtc"))
    if name is None:
        pytest.skip("no NVRTC: pip install nvidia-cuda-nvrtc (58 MB), or a CUDA toolkit")
    return ctypes.CDLL(name)


def compiled(nvrtc, text, architecture):
    """Return what the compiler says of a source, and its code."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    flags = [flag.encode() for flag in (*FLAGS, f"--gpu-architecture={architecture}")]
    failed = nvrtc.nvrtcCompileProgram(program, len(flags), (ctypes.c_char_p * len(flags))(*flags))
    log = text_of(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    return log, "" if failed else text_of(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def text_of(program, ask_size, ask):
    size = ctypes.c_size_t()
    ask_size(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    ask(program, text)
    return text.value.decode()


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", files())
def test_kernels_compile_without_a_warning(nvrtc, file, architecture):
    log, code = compiled(nvrtc, source(file), architecture)
    assert log == ""
    rules = re.findall(r"^UPDATE\((\w+)\)$", source(file), re.MULTILINE)
    names = [*DECLARED.findall(source(file)), *(f"update_{rule}" for rule in rules)]
    assert [name for name in names if f".entry {name}(" not in code] == []


def test_a_kernel_that_does_not_compile_is_noticed(nvrtc):
    log, code = compiled(nvrtc, source("lrn") + "KERNEL broken() { nothing(); }", "sm_80")
    assert "nothing" in log and not code


def test_the_updates_round_after_each_operation(nvrtc):
    _, code = compiled(nvrtc, source("solvers"), "sm_80")
    body = code.partition(".entry update_SGD(")[2].partition("ret;")[0]
    assert "mul.rn.f32" in body or "mul.f32" in body
    assert "fma.rn.f32" not in body
