"""The C library oneDNN (libdnnl, API v3) through ctypes: it is found, its version checked, its status raised as errors.

Handles are plain pointers. ctypes releases the GIL in each call, so that threads compute in parallel.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Sequence
from ctypes import POINTER, c_char, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

from scaffe.errors import OnednnError

PACKAGE, SONAME = "onednn-cpu-gomp", "libdnnl.so.3"
INSTALL = f"pip install {PACKAGE} (x86-64), or set SCAFFE_DNNL to a libdnnl.so.3"
INSTALL_OPENMP = "install GCC's OpenMP library: libgomp1 of Debian and Ubuntu, libgomp of others"
OPENMP, SYCL = 2, 512  # in dnnl_version_t.cpu_runtime

STATUS = ("success", "out_of_memory", "invalid_arguments", "unimplemented", "last_impl_reached", "runtime_error",
          "not_required")  # fmt: skip
INVALID_ARGUMENTS, UNIMPLEMENTED = 2, 3

# Values of the C API's enumerations; names without their dnnl_ and DNNL_ prefixes.
BF16 = 2
F32, TAG_ANY, CPU, SCRATCHPAD_USER = 3, 1, 1, 1
TAGS_BLOCKED = {3: (56, 69), 4: (78, 102), 5: (121, 142)}  # aBc16b aBc8b and so on, by number of axes
FORWARD_TRAINING, FORWARD_INFERENCE, BACKWARD = 64, 96, 128
NORM_GLOBAL_STATISTICS, NORM_SCALE, NORM_SHIFT, NORM_RELU = 1, 2, 4, 8
CONVOLUTION_DIRECT = 1
DECONVOLUTION_DIRECT = 10
ELTWISE_RELU, ELTWISE_ELU, ELTWISE_SQUARE, ELTWISE_ABS, ELTWISE_LINEAR, ELTWISE_SOFT_RELU = 32, 34, 35, 36, 38, 39
ELTWISE_SWISH, ELTWISE_LOG, ELTWISE_CLIP, ELTWISE_CLIP_V2, ELTWISE_MISH, ELTWISE_HARDSWISH = 44, 45, 46, 47, 51, 52
ELTWISE_RELU_BY_DST, ELTWISE_TANH_BY_DST, ELTWISE_ELU_BY_DST = 256, 257, 258  # the derivative by y
ELTWISE_LOGISTIC_BY_DST, ELTWISE_EXP_BY_DST, ELTWISE_CLIP_V2_BY_DST = 260, 261, 262
BINARY_ADD, BINARY_MUL = 0x1FFF0, 0x1FFF1
POOLING_MAX, POOLING_AVG_INCLUDE_PADDING, POOLING_AVG_EXCLUDE_PADDING = 511, 767, 1023
LRN_ACROSS_CHANNELS = 2815
SOFTMAX_ACCURATE = 196608

ISA_AVX512, ISA_BF16 = 0x20, 0x80  # bits of dnnl_cpu_isa_t
ISAS = {
    0x1: "SSE4.1",
    0x3: "AVX",
    0x7: "AVX2",
    0xF: "AVX2 with VNNI",
    0x1F: "AVX2 with VNNI 2",
    0x27: "AVX-512",
    0x67: "AVX-512 with VNNI",
    0xE7: "AVX-512 with BF16",
    0x1EF: "AVX-512 with FP16",
    0xFEF: "AVX-512 with AMX",
    0x1FEF: "AVX-512 with AMX FP16",
}

QUERY_IMPL_INFO_STR, QUERY_STRIDES = 8, 14
QUERY_INNER_BLOCKS, QUERY_INNER_SIZES, QUERY_INNER_AXES = 263, 264, 265
QUERY_SRC, QUERY_DIFF_SRC, QUERY_WEIGHTS, QUERY_DIFF_WEIGHTS, QUERY_DST, QUERY_DIFF_DST = range(129, 135)
QUERY_WORKSPACE, QUERY_SCRATCHPAD = 135, 136
QUERY_DATA_TYPE = 258

ARG_SRC, ARG_SRC_1, ARG_DST, ARG_WEIGHTS, ARG_BIAS, ARG_WORKSPACE, ARG_SCRATCHPAD = 1, 2, 17, 33, 41, 64, 80
ARG_DIFF_SRC, ARG_DIFF_DST, ARG_DIFF_WEIGHTS, ARG_DIFF_BIAS = 129, 145, 161, 169
ARG_MEAN, ARG_VARIANCE, ARG_SCALE, ARG_SHIFT, ARG_DIFF_SCALE, ARG_DIFF_SHIFT = 49, 50, 51, 52, 255, 256
ARG_MULTIPLE_SRC, ARG_SCALES = 1024, 4096
ARG_POST_OP = 32768  # times k + 1: of post-op number k

MAX_DIMS = 12
Dims = c_int64 * MAX_DIMS


class Version(ctypes.Structure):
    """dnnl_version_t."""

    _fields_ = [
        ("major", c_int),
        ("minor", c_int),
        ("patch", c_int),
        ("hash", c_char_p),
        ("cpu_runtime", c_uint),
        ("gpu_runtime", c_uint),
    ]


class Argument(ctypes.Structure):
    """dnnl_exec_arg_t: a memory and its role in a primitive."""

    _fields_ = [("arg", c_int), ("memory", c_void_p)]


def _forms(*names: str) -> list[Any]:
    """Return argument types from letters: p pointer, d dims, i int, u unsigned, f float, l dim."""
    types = {"p": c_void_p, "d": Dims, "i": c_int, "u": c_uint, "f": c_float, "l": c_int64}
    return [types[letter] for letter in "".join(names)]


# Arguments after the first, the handle that the call creates.
_CREATE = {
    "engine_create": _forms("i") + [c_size_t],
    "stream_create": _forms("pu"),
    "memory_desc_create_with_strides": _forms("idid"),
    "memory_desc_create_with_tag": _forms("idii"),
    "memory_desc_create_submemory": _forms("pdd"),
    "memory_desc_clone": _forms("p"),
    "memory_create": _forms("ppp"),
    "primitive_attr_create": [],
    "post_ops_create": [],
    "primitive_create": _forms("p"),
    "reorder_primitive_desc_create": _forms("ppppp"),
    "convolution_forward_primitive_desc_create": _forms("pii", "pppp", "dddd", "p"),
    "convolution_backward_data_primitive_desc_create": _forms("pi", "ppp", "dddd", "pp"),
    "convolution_backward_weights_primitive_desc_create": _forms("pi", "pppp", "dddd", "pp"),
    "pooling_forward_primitive_desc_create": _forms("pii", "pp", "ddddd", "p"),
    "pooling_backward_primitive_desc_create": _forms("pi", "pp", "ddddd", "pp"),
    "eltwise_forward_primitive_desc_create": _forms("pii", "pp", "ff", "p"),
    "eltwise_backward_primitive_desc_create": _forms("pi", "ppp", "ff", "pp"),
    "lrn_forward_primitive_desc_create": _forms("pii", "pp", "lfff", "p"),
    "lrn_backward_primitive_desc_create": _forms("pi", "ppp", "lfff", "pp"),
    "softmax_forward_primitive_desc_create": _forms("pii", "pp", "i", "p"),
    "softmax_backward_primitive_desc_create": _forms("pi", "ppp", "i", "pp"),
    "inner_product_forward_primitive_desc_create": _forms("pi", "pppp", "p"),
    "inner_product_backward_data_primitive_desc_create": _forms("p", "ppp", "pp"),
    "inner_product_backward_weights_primitive_desc_create": _forms("p", "pppp", "pp"),
    "batch_normalization_forward_primitive_desc_create": _forms("pi", "pp", "fu", "p"),
    "batch_normalization_backward_primitive_desc_create": _forms("pi", "ppp", "fu", "pp"),
    "binary_primitive_desc_create": _forms("pi", "ppp", "p"),
    "deconvolution_forward_primitive_desc_create": _forms("pii", "pppp", "dddd", "p"),
    "deconvolution_backward_data_primitive_desc_create": _forms("pi", "ppp", "dddd", "pp"),
    "deconvolution_backward_weights_primitive_desc_create": _forms("pi", "pppp", "dddd", "pp"),
    "sum_primitive_desc_create": _forms("ppi", "pp", "p"),
    "concat_primitive_desc_create": _forms("ppii", "p", "p"),
}
_CALL = {
    "primitive_attr_set_scratchpad_mode": _forms("pi"),
    "primitive_attr_set_post_ops": _forms("pp"),
    "primitive_attr_set_scales_mask": _forms("pii"),
    "post_ops_append_sum": [c_void_p, c_float, c_int32, c_int],
    "post_ops_append_eltwise": _forms("piff"),
    "post_ops_append_binary": _forms("pip"),
    "memory_set_data_handle": _forms("pp"),
    "primitive_execute": _forms("ppip"),
    "primitive_desc_query": _forms("piip"),
    "memory_desc_query": _forms("pip"),
    "sgemm": [c_char, c_char, c_int64, c_int64, c_int64, c_float, c_void_p, c_int64, c_void_p, c_int64, c_float,
              c_void_p, c_int64],
}  # fmt: skip
_DESTROY = ("engine", "stream", "memory_desc", "memory", "primitive_attr", "post_ops", "primitive_desc", "primitive")


class Library:
    """libdnnl, loaded from `path`. Raise OnednnError where the file is not oneDNN 3."""

    def __init__(self, path: str):
        self.path = path
        try:
            self.dll = ctypes.CDLL(path)
            self.dll.dnnl_version.restype = POINTER(Version)
            self.version: Version = self.dll.dnnl_version().contents
        except OSError as error:
            remedy = INSTALL_OPENMP if str(error).startswith("libgomp") else INSTALL
            raise OnednnError(f"can't load oneDNN from {path}: {error}; {remedy}") from None
        except AttributeError:
            raise OnednnError(f"can't load oneDNN from {path}: it has no dnnl_version; {INSTALL}") from None
        if self.version.major != 3:
            raise OnednnError(f"{path} is oneDNN {self.release}, scaffe needs version 3; {INSTALL}")
        if self.version.cpu_runtime == SYCL:  # a call returns before it has computed
            raise OnednnError(f"{path} is oneDNN {self.release} on SYCL, scaffe needs one on OpenMP or TBB; {INSTALL}")
        try:
            self._declare()
        except AttributeError as error:
            raise OnednnError(f"{path}, oneDNN {self.release}, is too old: {error}; {INSTALL}") from None

    @property
    def release(self) -> str:
        """The version, such as 3.2.0."""
        return f"{self.version.major}.{self.version.minor}.{self.version.patch}"

    @property
    def isa(self) -> int:
        """The instruction sets that the library uses on this CPU, as bits of dnnl_cpu_isa_t.

        ONEDNN_MAX_CPU_ISA may limit them.
        """
        found: int = self.dll.dnnl_get_effective_cpu_isa()
        return found

    @property
    def isa_name(self) -> str:
        """The widest instruction set that the library uses on this CPU, such as AVX2."""
        return ISAS.get(self.isa, f"oneDNN set {self.isa:#x}")

    def _declare(self) -> None:
        for name, arguments in _CREATE.items():
            self._function(name).argtypes = [POINTER(c_void_p), *arguments]
        for name, arguments in _CALL.items():
            self._function(name).argtypes = arguments
        for name in _DESTROY:
            self._function(f"{name}_destroy").argtypes = [c_void_p]
        self._function("memory_desc_get_size").argtypes = [c_void_p]
        self._function("memory_desc_get_size").restype = c_size_t
        self._function("memory_desc_equal").argtypes = [c_void_p, c_void_p]
        query = self._function("primitive_desc_query_md")
        query.argtypes, query.restype = _forms("pii"), c_void_p

    def _function(self, name: str) -> Any:
        return getattr(self.dll, f"dnnl_{name}")

    def create(self, name: str, *arguments: Any, what: str = "") -> int:
        """Return the handle that dnnl_`name` creates. Raise OnednnError, which names `what` was requested."""
        handle = c_void_p()
        self.check(self._function(name)(handle, *arguments), name, what)
        return handle.value or 0

    def call(self, name: str, *arguments: Any, what: str = "") -> None:
        """Call dnnl_`name`. Raise OnednnError, which names `what` was requested."""
        self.check(self._function(name)(*arguments), name, what)

    def check(self, status: int, name: str, what: str = "") -> None:
        """Raise OnednnError unless `status` is success."""
        if status:
            text = STATUS[status] if status < len(STATUS) else f"status {status}"
            raise OnednnError(f"oneDNN {self.release}: {name} gave {text}" + (f": {what}" if what else ""), status)

    def equal(self, one: int, other: int) -> bool:
        """Return whether two memory descriptors are equal."""
        return bool(self.dll.dnnl_memory_desc_equal(one, other))


def dims(values: Any) -> Any:
    """Return numbers as dnnl_dims_t."""
    return Dims(*values)


@cache
def load() -> Library:
    """Return the library: the file that SCAFFE_DNNL names, else the newest of the wheel's and the system's.

    Raise OnednnError, which says what to install, where there is none.
    """
    if named := os.environ.get("SCAFFE_DNNL"):
        return Library(named)
    paths = _of_system() + _in_wheel()  # in this order: by its name alone the loader gives what is loaded already
    if not paths:
        raise OnednnError(f"oneDNN is not installed; {INSTALL}")
    return newest(paths)


def newest(paths: Sequence[str]) -> Library:
    """Return the library of the highest version, the last of several; raise the last OnednnError if there is none."""
    found, errors = [], []
    for path in paths:
        try:
            found.append(Library(path))
        except OnednnError as error:
            errors.append(error)
    if not found:
        raise errors[-1]
    return max(reversed(found), key=lambda one: (one.version.minor, one.version.patch))


def _of_system() -> list[str]:
    """Return the library's name where the loader finds it."""
    try:
        ctypes.CDLL(SONAME)
    except OSError:
        return []
    return [SONAME]


def _in_wheel() -> list[str]:
    """Return the path of the wheel's library: in this environment, else where the wheel's record says."""
    here = Path(sys.prefix, "lib", SONAME)
    return [str(path) for path in ([here] if here.exists() else _recorded())][:1]


def _recorded() -> list[Path]:
    """Return the files of the library that the wheel has installed."""
    from importlib import metadata  # here: few need it, and it takes a fortieth of a rank's start

    try:
        files = metadata.files(PACKAGE) or []
    except metadata.PackageNotFoundError:
        return []
    paths = [Path(str(f.locate())).resolve() for f in files if f.name == SONAME]
    return [path for path in paths if path.exists()]


@cache
def openmp() -> Any:
    """Return the OpenMP library that libdnnl uses, None where it uses other threads."""
    if load().version.cpu_runtime != OPENMP:
        return None
    try:
        return ctypes.CDLL("libgomp.so.1")
    except OSError:
        return None
