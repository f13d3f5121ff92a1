"""NVIDIA's runtime compiler, which needs no GPU: of its package or of a toolkit."""

import ctypes
import importlib.util
from ctypes.util import find_library
from pathlib import Path

import pytest

MISSING = "no NVRTC: pip install nvidia-cuda-nvrtc (58 MB), or a CUDA toolkit"


def find():
    """Return the library; skip the test where there is none."""
    spec = importlib.util.find_spec("nvidia")
    roots = [Path(root) for root in (spec.submodule_search_locations or [])] if spec else []
    found = [str(path) for root in roots for path in sorted(root.glob("*/lib/libnvrtc.so.*"))]
    name = next(iter(found), find_library("nvrtc"))
    if name is None:
        pytest.skip(MISSING)
    return ctypes.CDLL(name)


CUPYS = ("-ftz=true",)  # what CuPy adds behind the options that it is given, of which the last counts


def compiled(nvrtc, text, architecture, flags):
    """Return what the compiler says of a source, compiled as CuPy does, and its code, "" where it did not compile."""
    program = ctypes.c_void_p()
    assert nvrtc.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", 0, None, None) == 0
    options = [flag.encode() for flag in (*flags, *CUPYS, f"--gpu-architecture={architecture}")]
    failed = nvrtc.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
    log = _text(program, nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog)
    return log, "" if failed else _text(program, nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX)


def _text(program, ask_size, ask):
    size = ctypes.c_size_t()
    ask_size(program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value)
    ask(program, text)
    return text.value.decode()
