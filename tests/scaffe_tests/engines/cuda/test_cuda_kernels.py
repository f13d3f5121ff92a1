"""The CUDA engine's kernels compile, by NVIDIA's compiler, for every GPU that is of interest; none is needed."""

import re

import nvrtc
import pytest

from scaffe.engines.cuda.launcher import FLAGS, files, source

ARCHITECTURES = "sm_75", "sm_80", "sm_90"
NORMS = ["norm_chunks", "normalise", "norm_back_chunks", "normalise_back", "scale", "scale_back"]
MADE = {  # kernels' names, by the macro that makes them
    "UPDATE": ["update_{}"],
    "LRN": ["lrn_{}", "lrn_back_{}"],
    "MOVE": ["gather_{}", "scatter_{}"],
    "LAST": [f"{kernel}_{{}}" for kernel in NORMS],
    "STRIPS": ["pool_max_{}", "pool_mean_{}"],
    "WINDOWS": [
        f"pool_{kernel}_{window}{{}}"
        for kernel in ("max", "max_back", "mean", "mean_back") for window in ("3_2", "2_2", "3_1")
    ],
    "POOL": ["pool_max{}", "pool_max_back{}", "pool_mean{}", "pool_mean_back{}"],
    "ROW_SUMS": ["row_sums{}", "unrectified_sums{}"],
    "FINISH": ["finish{}"],
}  # fmt: skip
DECLARED = re.compile(r"^KERNEL (\w+)\(", re.MULTILINE)


@pytest.fixture(scope="module")
def library():
    return nvrtc.find()


def compiled(library, text, architecture):
    """Return what the compiler says of a source, and its code."""
    return nvrtc.compiled(library, text, architecture, FLAGS)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("file", files())
def test_kernels_compile_without_a_warning(library, file, architecture):
    log, code = compiled(library, source(file), architecture)
    assert log == ""
    made = re.findall(rf"^({'|'.join(MADE)})\((?:[\w<>]+, )*(\w+)\)$", source(file), re.MULTILINE)
    names = [*DECLARED.findall(source(file)), *(name.format(of) for macro, of in made for name in MADE[macro])]
    assert [name for name in names if f".entry {name}(" not in code] == []


@pytest.mark.parametrize("file", files())
def test_arrays_of_a_thread_lie_in_registers(library, file):
    assert ".local" not in compiled(library, source(file), "sm_90")[1]


def test_a_kernel_that_does_not_compile_is_noticed(library):
    log, code = compiled(library, source("lrn") + "KERNEL broken() { nothing(); }", "sm_80")
    assert "nothing" in log and not code


def test_the_updates_round_after_each_operation(library):
    _, code = compiled(library, source("solvers"), "sm_80")
    body = code.partition(".entry update_SGD(")[2].partition("ret;")[0]
    assert "mul.rn.ftz.f32" in body or "mul.ftz.f32" in body  # as CuPy has it: denormal numbers are zeros
    assert "fma." not in body


@pytest.mark.parametrize("kernel", ["update_SGD", "update_Adam"])
def test_the_updates_move_16_bytes_at_once(library, kernel):
    _, code = compiled(library, source("solvers"), "sm_90")
    body = code.partition(f".entry {kernel}(")[2].partition("\n}")[0]
    assert re.findall(r"ld\.global\S*\.v4\.", body) and re.findall(r"st\.global\S*\.v4\.", body)
