"""Calls of CuPy and of cuDNN's frontend fit the installed libraries, as far as these tell without a GPU."""

import ast
import inspect
import re
from pathlib import Path

import deviceless_cudnn
import pytest

ROOT = Path(__file__).resolve().parents[4]
FOLDERS = "scaffe/engines", "scaffe/devices", "scaffe/layers", "scaffe/solvers", "collectives/execution/device"
ROOTS = {"cupy": "", "_cupy": "", "xp": "", "cuda": "cuda", "_cuda": "cuda", "runtime": "cuda.runtime"}
ROOTS["_runtime"] = "cuda.runtime"
NO_MODULE = {"xp.get", "cuda.find", "cuda.take"}  # scaffe's own names
WANTED = "no CuPy: pip install cupy-cuda13x"
UFUNC = "(x1, x2=None, /, out=None, *, where=True, casting='same_kind', dtype=None, axis=None, keepdims=False)"


def calls(names, folders=FOLDERS):
    """Yield each call whose function is an attribute of one of these names: its path, place and node."""
    for path in (path for folder in folders for path in sorted((ROOT / folder).rglob("*.py"))):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
                words = ast.unparse(node.func).split(".")
                start = next((i for i, word in enumerate(words) if word in names), len(words))
                if start < len(words) - 1 and all(word.isidentifier() for word in words):
                    yield ".".join(words[start:]), f"{path.relative_to(ROOT)}:{node.lineno}", node


def find(module, name):
    """Return what a dotted name is in a module, None where it is not there."""
    for word in name.split("."):
        module = getattr(module, word, None)
    return module


def signature(function):
    """Return the signature of a function; compiled ones have it in the first line of their documentation."""
    try:
        return inspect.signature(function)
    except ValueError:
        lines = (function.__doc__ or "").strip().splitlines() or [""]
        arguments = re.search(r"\((.*)\)", lines[0])
        if type(function).__name__ == "ufunc":
            text = UFUNC
        elif arguments is None:
            return None
        else:  # "intptr_t dst, size_t size, stream=None"
            given = [re.sub(r"^[\w ]+ (\w+)", r"\1", one.strip()) for one in arguments[1].split(",")]
            given = [re.sub("=.*", "=None", one) for one in given]
            text = f"({', '.join(given)})"
        made = {}
        exec(f"def function{text}: pass", made)
        return inspect.signature(made["function"])


def misfit(function, node):
    """Return why a call does not fit a function, "" where it fits or can't be known."""
    known = signature(function)
    if known is None or any(isinstance(one, ast.Starred) for one in node.args) or any(not k.arg for k in node.keywords):
        return ""
    try:
        known.bind(*node.args, **{one.arg: one.value for one in node.keywords})
    except TypeError as error:
        return f"{error}; it takes {known}"
    return ""


def test_each_call_of_cupy_fits_it():
    cupy = pytest.importorskip("cupy", reason=WANTED, exc_type=ImportError)
    wrong, seen = [], 0
    for name, place, node in calls(ROOTS):
        first, _, rest = name.partition(".")
        function = find(cupy, ".".join(filter(None, (ROOTS[first], rest))))
        if name in NO_MODULE:
            continue
        seen += 1
        if function is None or (why := misfit(function, node)):
            wrong.append(f"{place}: {name}: {'CuPy has no such name' if function is None else why}")
    assert wrong == []
    assert seen > 50


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("memcpyAsync", (4096, 8192, 16, 4, 0)),
        ("ipcGetMemHandle", (4096,)),
        ("ipcOpenMemHandle", (bytes(64),)),
        ("ipcCloseMemHandle", (4096,)),
        ("setDevice", (0,)),
        ("deviceGetPCIBusId", (0,)),
        ("deviceCanAccessPeer", (0, 1)),
    ],
)
def test_cudas_functions_take_numbers_and_bytes_as_the_collectives_give_them(name, arguments):
    """A wrong type is refused before CUDA is asked, which says that there is no device."""
    cupy = pytest.importorskip("cupy", reason=WANTED, exc_type=ImportError)
    runtime = cupy.cuda.runtime
    try:
        runtime.getDeviceCount()
    except runtime.CUDARuntimeError:
        with pytest.raises(runtime.CUDARuntimeError):
            getattr(runtime, name)(*arguments)
        assert runtime.eventQuery(4096) != 0  # which returns the status instead
    else:
        pytest.skip("there is a GPU, on which these pointers would be used")


def test_a_call_that_does_not_fit_is_noticed():
    cupy = pytest.importorskip("cupy", reason=WANTED, exc_type=ImportError)
    for text, fits in (
        ("f(1, 2, 3, 4, 5)", True), ("f(1, 2, 3, 4)", False), ("f(1, 2, 3, 4, stream=5)", True), ("f(*a)", True),
        ("f(1, 2, 3, 4, where=5)", False),
    ):  # fmt: skip
        node = ast.parse(text, mode="eval").body
        assert (misfit(cupy.cuda.runtime.memcpyAsync, node) == "") == fits, text


def test_each_call_of_cudnns_frontend_fits_it():
    cudnn = deviceless_cudnn.library("H200").frontend
    wrong, seen = [], set()
    for name, place, node in calls(("graph", "frontend"), ["scaffe/engines/cuda"]):
        first, _, rest = name.partition(".")
        function = find(cudnn.pygraph if first == "graph" else cudnn, rest)
        if first == "graph" and not place.startswith("scaffe/engines/cuda/cudnn.py"):
            continue
        seen.add(rest)
        bound = (
            node if first == "frontend" else ast.Call(node.func, [node.func, *node.args], node.keywords)
        )  # with self
        if function is None or (why := misfit(function, bound)):
            wrong.append(f"{place}: {name}: {'the frontend has no such name' if function is None else why}")
    assert wrong == []
    assert {"execute_plan_at_index", "deselect_numeric_notes", "set_stream", "backend_version"} <= seen
