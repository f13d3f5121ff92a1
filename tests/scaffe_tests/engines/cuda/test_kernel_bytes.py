"""Each kernel reads its inputs once and writes its results once; what is moved again, from the caches, is bounded."""

import re
from pathlib import Path

import numpy as np
import pytest
from bytes_to_move import CASES
from host_kernels import with_halves
from kernel_bytes import counted, module

from collectives.execution.device import kernels as joins
from scaffe.engines.cuda.launcher import THREADS, files, source

PAIRS = [(case, shift) for case in CASES for shift in case.shifts]
BY_NAME = {(case.file, case.kernel): case for case in CASES}
MANUAL = {  # rows of the manual's table: of each formula in float32, then in bfloat16, the kernels
    "ReLU forward; backward": ("relu-relu; relu-relu_back", "relu-relu_bf16; relu-relu_back_bf16"),
    "MAX pooling forward; backward": (
        "pooling-pool_max_1; pooling-pool_max_back",
        "pooling_last-pool_max_3_2_bf16_8; pooling_last-pool_max_back_3_2_bf16_8",
    ),
    "AVE pooling, either way": (
        "pooling-pool_mean_1 pooling-pool_mean_back",
        "pooling_last-pool_mean_3_2_bf16_8 pooling_last-pool_mean_back_bf16_8",
    ),
    "LRN forward; backward": ("lrn-lrn_2; lrn-lrn_back_2", "lrn_last-lrn_2_bf16_16; lrn_last-lrn_back_2_bf16_16"),
    "Eltwise of two forward; Concat, Slice either way": (
        "eltwise-eltwise_sum; parts-gather_4 parts-scatter_4",
        "eltwise-eltwise_sum_bf16; parts-gather_2 parts-scatter_2",
    ),
}


def code_of(file):
    return with_halves(joins.source()) if file == "collectives" else source(file)


def moved(case, shift=0, code=None):
    """Return the counts of a case's arrays: of those that it must move, and of the small ones, by name."""
    counts = counted(code or code_of(case.file), case.kernel, case.blocks, case.given, case.unit, shift)
    small = {name: counts.pop(name) for name in case.small.split()}
    return counts, small


def excess(case, shift=0, code=None):
    """Yield a line for each array that moves otherwise than it must."""
    counts, small = moved(case, shift, code)
    most = THREADS * int(np.prod(case.blocks)) + sum(one.array.size for some in counts.values() for one in some)
    for name, some in counts.items():
        for one in some:
            if not as_read(case, name, one.reads):
                yield f"{name} read {one.reads.mean()} times on average, {one.reads.max()} at most"
            if not as_written(case, name, one.writes):
                yield f"{name} written {one.writes.mean()} times on average, {one.writes.max()} at most"
    for name, some in small.items():
        for one in some:
            if one.nbytes > most * one.array.itemsize:
                yield f"{name}: {one.nbytes} bytes, more than one element for each of {most} elements and threads"


def as_read(case, name, reads):
    """Return whether each byte of an array is read as often as it must be, or at most as often as the table allows."""
    if name not in case.reads.split():
        return not reads.any()
    if name in case.part.split():
        return reads.any() and reads.max() == 1
    if name in case.again:
        return reads.any() and reads.mean() <= case.again[name]
    return (reads == 1).all()


def as_written(case, name, writes):
    must = case.rewritten.get(name, 1) if name in case.writes.split() else 0
    return (writes == must).all()


@pytest.mark.parametrize(("case", "shift"), PAIRS, ids=[f"{c.file}-{c.kernel}-{shift}" for c, shift in PAIRS])
def test_a_kernel_moves_what_it_must(case, shift):
    assert [*excess(case, shift)] == []


@pytest.mark.parametrize("file", [*files(), "collectives"])
def test_each_kernel_is_in_the_table(file):
    assert sorted(module(code_of(file))[1]) == sorted(case.kernel for case in CASES if case.file == file)


def manual():
    """Return the rows of the manual's table of bytes, by their first column."""
    text = Path(__file__).parents[4].joinpath("docs/gpu.md").read_text()
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    return {row[0]: row[1:] for row in rows}


@pytest.mark.parametrize("row", MANUAL)
def test_the_manual_has_the_bytes_that_kernels_touch(row):
    for formulas, kernels in zip(manual()[row], MANUAL[row], strict=True):
        for formula, names in zip(formulas.split(";"), kernels.split(";"), strict=True):
            for name in names.split():
                counts, _ = moved(BY_NAME[tuple(name.split("-"))])
                sizes = {key[-1]: counts[key][0].array.size for key in ("x", "y", "dx", "dy") if key in counts}
                sizes.setdefault("y", sum(one.array.size for one in counts.get("whole", [])))
                bytes_ = sum(int(n) * sizes[of] for n, of in re.findall(r"(\d+) (\w)", formula))
                touched = (np.count_nonzero(each) for some in counts.values() for one in some for each in one[1:])
                assert sum(touched) == bytes_, name


RELU = "KERNEL relu(Index count, const float* x, float* y, float slope) {"


def test_an_array_that_is_read_twice_is_noticed():
    code = source("relu")
    assert RELU in code
    twice = code.replace(RELU, f"{RELU} float sum = 0; EACH(i, count) sum += x[i]; slope += sum * 0.0f;")
    found = [*excess(BY_NAME["relu", "relu"], code=twice)]
    assert found == ["x read 2.0 times on average, 2 at most"]


def test_an_array_that_is_passed_is_noticed():
    case = BY_NAME["relu", "relu"]
    with pytest.raises(AssertionError, match="relu passes the end of x"):
        moved(case._replace(given=case.given | {"count": case.given["count"] + 1}))
