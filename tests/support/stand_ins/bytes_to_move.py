"""What each CUDA kernel must move between memory and its arithmetic, and arguments to count that with.

A kernel reads each element of `reads` once and writes each element of `writes` once. Exceptions:

- `small`: a number for each channel, row, block or parameter, or a table of these. Many threads read them, from the
  caches.
- `again`: arrays that are read more often, at most so often on average. Windows overlap, or a block goes over its row
  twice: the caches hold what is read again.
- `rewritten`: arrays that are written so often, for the same reason.
- `part`: arrays of which not all is read or written, and no element twice.
"""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

from collectives.codecs import BLOCK
from collectives.execution.device import kernels as joins
from scaffe.engines.cuda.launcher import divisor

N = 1003  # elements: several blocks' threads, and no multiple of a pack
LOW = "", "_bf16"
PACKS = {"_1": 1, "_4": 4, "_bf16_1": 1, "_bf16_8": 8}  # the channels of a thread, by the end of a kernel's name


class Case(NamedTuple):
    file: str
    kernel: str
    given: dict[str, Any]
    reads: str = ""
    writes: str = ""
    small: str = ""
    again: dict[str, float] = {}
    rewritten: dict[str, int] = {}
    part: str = ""
    blocks: tuple[int, ...] = (2,)
    shifts: tuple[int, ...] = (0, 1)  # elements by which arrays begin off a boundary; packs need (0,)
    unit: int | None = None


def arrays(names, elements):
    return dict.fromkeys(names.split(), elements)


def divisors(**numbers):
    return {f"by_{name}": divisor(number) for name, number in numbers.items()}


def elementwise():
    """Kernels over arrays of one length."""
    for low in LOW:
        for file, kernel, reads, writes, numbers in (
            ("relu", "relu", "x", "y", {"slope": 0.1}),
            ("relu", "relu_back", "x dy", "dx", {"slope": 0.1}),
            ("eltwise", "eltwise_sum", "a b", "y", {"of_a": 1, "of_b": 1}),
            ("eltwise", "eltwise_scaled", "x", "y", {"by": 2}),
            ("eltwise", "eltwise_product", "a b", "y", {}),
            ("eltwise", "eltwise_max", "a b", "y winner", {}),
            ("eltwise", "eltwise_max_next", "x y winner", "y winner", {"number": 2}),
            ("eltwise", "eltwise_max_back", "dy winner", "dx", {"number": 1}),
            ("eltwise", "sum_back_unrectified", "y dy", "first second", {}),
            ("parts", "sum_of", "p0 p1 p2 p3 p4 p5 p6 p7", "total", {}),
        ):
            given = {"count": N, **arrays(f"{reads} {writes}", N), **numbers}
            yield Case(file, kernel + low, given, reads, writes)
    yield Case("rows", "to_bf16", {"count": N, "x": N, "y": N}, "x", "y")
    yield Case("idle", "idle", {"cycles": 5000})


def dropout():
    rows, per_row, steps = 11, 100, 13
    numbers = {"first_row": 3, "per_row": per_row, "steps": steps, "ratio": 0.5, "scale": 2, **divisors(steps=steps)}
    for low in LOW:
        given = {"count": rows * steps, **arrays("x y", rows * per_row), "key": 2, **numbers}
        yield Case("dropout", f"dropout{low}", given, "x", "y", "key")
    yield Case("dropout", "set_key", {"count": 2, "key": 2, "key0": 1, "key1": 2}, writes="key", blocks=(1,))


def layouts():
    """Transpositions that add a bias and to what the target holds, which is read for that."""
    for kind in ("float", "to_bf16", "from_bf16", "bf16"):
        for narrow, rows, columns in (("", 40, 70), ("narrow_", 5, 300)):
            given = {**arrays("source target", 2 * rows * columns), "bias": columns}
            given |= {"rows": rows, "columns": columns, "add": 1}
            if narrow:
                given |= {"count": 2 * rows * columns, **divisors(rows=rows, columns=columns)}
            yield Case("layouts", f"turn_{narrow}{kind}", given, "source target", "target", "bias", blocks=(2 * 2 * 3,))


def folds():
    """Blocks of 2 x 2 pixels of pictures with 3 channels and a border of zeros; of a picture nothing is read twice."""
    n, channels, h, w, high, wide = 5, 3, 10, 12, 6, 7
    blocks = {"channels": channels, "block_rows": 2, "block_columns": 2, "pitch": 16}
    steps = {"row_step": 2, "column_step": 2, "top": 2, "left": 2}
    for low, many in (("", 4), ("_bf16", 8)):
        given = {"x": n * channels * h * w, "y": n * high * wide * 16, "count": n * high * wide * 16 // many}
        given |= {"h": h, "w": w, "high": high, "wide": wide, **steps, **blocks}
        given |= divisors(high=high, row=wide * 16 // many, packs=16 // many, channels=channels, columns=2)
        yield Case("fold", f"fold{low}", given, "x", "y", shifts=(0,))
        filters, kernel = 4, 7  # of 4 x 4 blocks, the first of which begins a pixel before them
        given = {"source": filters * 4 * 4 * 16, "dw": filters * channels * kernel**2, "h": kernel, "w": kernel}
        given |= {"count": given["dw"], "high": 4, "wide": 4, "top": 1, "left": 1, "add": 1, **blocks}
        yield Case("fold", f"unfold{low}", given | divisors(rows=kernel, columns=kernel), "source dw", "dw",
                   part="source")  # fmt: skip


def normalisations():
    """The kernels of BatchNorm and Scale over two chunks, as a channel fits no block."""
    channels, inner, count, chunks = 3, 700, 6 * 700, 2
    shape = {"channels": channels, "inner": inner, "count": count, "chunks": chunks, **divisors(inner=inner)}
    for kernel, given, moved in _normalisations(channels, count, chunks):
        yield Case("batch_norm", f"{kernel}_first", given | shape, **moved, blocks=(channels * chunks,))
    given = arrays("x", channels * count) | arrays("sums", channels * chunks) | shape
    yield Case("batch_norm", "sum_chunks_first", given, "x", "sums", blocks=(channels * chunks,))


def normalisations_last():
    """The same for channels last. All threads begin their sums of squares at the first row of the chunk."""
    channels, count, chunks, lanes = 72, 300, 2, 4
    shape = {"channels": channels, "count": count, "size": 160, "lanes": lanes}
    for form, each in ("last", 4), ("last_bf16", 8):
        blocks = -(-channels // (lanes * each)), chunks
        for kernel, given, moved in _normalisations(channels, count, chunks):
            again = {"x": 1.5} if kernel == "norm_chunks" else {}
            name = f"{kernel}_{form}"
            yield Case("batch_norm_last", name, given | shape, **moved, again=again, blocks=blocks, shifts=(0,))


def _normalisations(channels, count, chunks):
    """Yield kernels, the arguments that all their forms have, and what they move."""
    constants = "mean inverse factor bias"
    for kernel, reads, writes, small, sums, numbers in (
        ("norm_chunks", "x", "kept", "", "means squares", {}),
        ("normalise", "x other", "y", constants, "", {"rectified": 1}),
        ("norm_back_chunks", "x dy", "", constants, "sums slopes", {"rectified": 1}),
        ("normalise_back", "x dy", "dx", "mean terms", "", {"rectified": 1, "bare": 0}),
        ("scale", "x", "kept y", "factor bias", "", {}),
        ("scale_back", "x dy", "dx", "factor", "sums slopes", {}),
    ):
        given = {**arrays(f"{reads} {writes}", channels * count), **arrays(small, channels), **numbers}
        given |= arrays(sums, channels * chunks) | ({"terms": 5 * channels} if "terms" in small else {})
        yield kernel, given, {"reads": reads, "writes": f"{writes} {sums}", "small": small}


def statistics():
    """Numbers of channels from those of chunks. The means of the chunks are read twice, in two passes over them."""
    channels, chunks = 5, 300
    of_chunks, blocks = channels * chunks, (channels,)
    numbers = {"count": chunks * 4096, "chunks": chunks, "size": 4096, "eps": 1e-5, "fraction": 0.9, "unbias": 1}
    results, sums = "means_of inverse", "mean_sum variance_sum"
    given = {**arrays("means squares", of_chunks), **arrays(f"{results} {sums}", channels), "weight": 1, **numbers}
    yield Case("batch_norm", "norm_statistics", given, f"means squares {sums} weight", f"{results} {sums} weight",
               again={"means": 2}, blocks=blocks)  # fmt: skip
    given = {"count": N, **arrays("means variances mean inverse", N), "weight": 1, "eps": 1e-5}
    yield Case("batch_norm", "known_statistics", given, "means variances", "mean inverse", "weight")
    of_blobs = "of_factor of_bias"
    adds = {**arrays(of_blobs, channels), "add_factor": 1, "add_bias": 1, "chunks": chunks}
    constants = "inverse factor bias"
    totals = {**arrays("sums slopes", of_chunks), **arrays(constants, channels), "terms": 5 * channels, **adds}
    yield Case("batch_norm", "norm_totals", totals | {"channels": channels, "share": 0.1},
               f"sums slopes {constants} {of_blobs}", f"terms {of_blobs}", blocks=blocks)  # fmt: skip
    given = {**arrays("sums slopes", of_chunks), **adds}
    yield Case("batch_norm", "scale_gradients", given, f"sums slopes {of_blobs}", of_blobs, blocks=blocks)


def rows():
    """Sums and biases of channels last. A bias is read for each row, from the caches."""
    for end, many in PACKS.items():
        channels, high = 40, 203
        groups, shifts = channels // many, (0, 1) if many == 1 else (0,)
        given = {"maps": high * channels, "sums": 3 * channels, "rows": high, "channels": channels, "add": 1}
        given |= {"lanes": 1 << (groups - 1).bit_length()}
        yield Case("rows", f"row_sums{end}", given, "maps sums", "sums", blocks=(1, 3), shifts=shifts)
        given = {name: given[name] for name in ("sums", "rows", "channels", "lanes")}
        given |= arrays("y dy", high * channels)
        yield Case("rows", f"unrectified_sums{end}", given, "y dy", "dy sums", blocks=(1, 3), shifts=shifts)
        given = {"count": high * groups, "maps": high * channels, "bias": channels, "groups": groups}
        given |= {"rectified": 1, **divisors(groups=groups)}
        yield Case("rows", f"finish{end}", given, "maps", "maps", "bias", shifts=shifts)


def lrns():
    """Neighbouring runs of channels overlap; channels last each thread reads the packs around its own."""
    channels, pixels, run = 128, 37, 64
    for reach in (1, 2, 3, 4):
        numbers = {"alpha": 0.1, "beta": 0.75, "k": 1}
        for pass_, reads, writes, of_x, factor in (("", "x", "y", 1, {}), ("_back", "x dy", "dx", 2, {"factor": 1})):
            given = {**arrays(f"{reads} {writes}", 2 * channels * pixels), **numbers, **factor}
            reaches = {"x": of_x * reach} | ({"dy": reach} if factor else {})
            first = given | {"pixels": pixels, "channels": channels, "rows": 2 * channels // run}
            again = {name: 1 + reached / run for name, reached in reaches.items()}
            yield Case("lrn", f"lrn{pass_}_{reach}", first, reads, writes, again=again, blocks=(1, 2))
            for end, many in (PACKS | {"_8": 8, "_bf16_16": 16}).items():  # the last two are two packs of each thread
                groups, pack = channels // many, min(many, 8 if "bf16" in end else 4)
                last = given | {"count": 2 * groups * pixels, "groups": groups, **divisors(groups=groups)}
                again = {name: 1 + 2 * -(-reached // pack) * pack / many for name, reached in reaches.items()}
                shifts = (0, 1) if many == 1 else (0,)
                yield Case("lrn_last", f"lrn{pass_}_{reach}{end}", last, reads, writes, again=again, shifts=shifts)


def poolings():
    """Windows of 3 x 3: each pixel is in several."""
    for strip, stride in ((1, 2), (4, 1)):
        size, out, given = _axes(stride)
        forward = given | {"count": 4 * -(-out // strip) * out, "x": 4 * size**2, "y": 4 * out**2}
        forward |= divisors(strips=-(-out // strip), columns=out)
        again = {"x": 3 / stride * (3 / stride if strip == 1 else (strip + 2) / strip)}
        yield Case("pooling", f"pool_mean_{strip}", forward, "x", "y", again=again)
        yield Case("pooling", f"pool_max_{strip}", forward | {"winner": 4 * out**2}, "x", "y winner", again=again)
    size, out, given = _axes(2)
    strips = -(-size // 4)
    back = given | {"count": 4 * strips * size, "dy": 4 * out**2, "dx": 4 * size**2}
    back |= divisors(strips=strips, columns=size)
    again = arrays("dy winner", 3 * 1.5)  # three columns of pixels, and in half of the cases two strips of rows
    yield Case("pooling", "pool_mean_back", back, "dy", "dx", again={"dy": again["dy"]})
    yield Case("pooling", "pool_max_back", back | {"winner": 4 * out**2}, "dy winner", "dx", again=again)


def poolings_last():
    """The same for channels last: a thread of the backward pass reads all windows that hold its pixel, 9 at most."""
    for end, many in PACKS.items():
        size, out, given = _axes(2)
        groups, shifts = 16 // many, (0, 1) if many == 1 else (0,)
        given |= {"groups": groups, **divisors(groups=groups)}
        for pass_, side, source, target, often in (("", out, "x", "y", 2.25), ("_back", size, "dy", "dx", 9)):
            passes = given | {"count": 2 * side**2 * groups, **divisors(rows=side, columns=side)}
            passes |= {name: 32 * (size if "x" in name else out) ** 2 for name in (source, target)}
            yield Case(
                "pooling_last", f"pool_mean{pass_}{end}", passes, source, target, again={source: often}, shifts=shifts
            )
            reads, writes = (f"{source} winner", target) if pass_ else (source, f"{target} winner")
            again = dict.fromkeys(reads.split(), often)
            passes = passes | {"winner": 32 * out**2}
            yield Case("pooling_last", f"pool_max{pass_}{end}", passes, reads, writes, again=again, shifts=shifts)


def poolings_known():
    """Windows that kernels know: lines of pixels are read again, and pixels at the edge of a window that passes it."""
    pixels = 2  # rows and columns of those of a thread in the backward pass
    for (kernel, stride, high), (end, many) in product(((3, 2, 1), (2, 2, 1), (3, 1, 4)), (("_4", 4), ("_bf16_8", 8))):
        size, out, given = _axes(stride, kernel)
        given |= {"groups": 16 // many, **divisors(groups=16 // many)}
        blocks, strips, name = -(-size // pixels), -(-out // high), f"{kernel}_{stride}{end}"
        x, y = 32 * size**2, 32 * out**2
        forward = given | {"count": 2 * strips * out * (16 // many), "x": x, "y": y}
        forward |= divisors(rows=strips, columns=out)
        again = {"x": {(3, 2): 2.25, (2, 2): 1.2, (3, 1): 4.5}[kernel, stride]}
        yield Case("pooling_last", f"pool_mean_{name}", forward, "x", "y", again=again, shifts=(0,))
        forward = forward | {"winner": y}
        yield Case("pooling_last", f"pool_max_{name}", forward, "x", "y winner", again=again, shifts=(0,))
        back = given | {"count": 2 * blocks**2 * (16 // many), "dy": y, "dx": x}
        back |= divisors(rows=blocks, columns=blocks)
        again = {"dy": 1 if kernel == stride else 4}  # in two blocks' rows and in two columns
        yield Case("pooling_last", f"pool_mean_back_{name}", back, "dy", "dx", again=again, shifts=(0,))
        back = back | {"winner": y}
        again = arrays("dy winner", 1 if kernel == stride else 6)  # and for one that would lie outside
        yield Case("pooling_last", f"pool_max_back_{name}", back, "dy winner", "dx", again=again, shifts=(0,))


def _axes(stride, kernel=3):
    """Return the side of an image, that of its pooled image, and arguments for windows of that size."""
    size, out = 17, -(-(17 - kernel) // stride) + 1
    given = {"h": size, "oh": out, "kh": kernel, "sh": stride, "ph": 0}
    given |= {"w": size, "ow": out, "kw": kernel, "sw": stride, "pw": 0}
    return size, out, given | divisors(sh=stride, sw=stride)


def columns():
    """Each pixel goes into several columns; of a pixel's entries none is read twice."""
    size, out, n, channels = 12, 10, 2, 3
    sides = {f"{name}{axis}": 1 for name in "sd" for axis in "hw"} | {"ph": 0, "pw": 0, "kh": 3, "kw": 3}
    sides |= {"h": size, "w": size, "oh": out, "ow": out, "n": n, "channels": channels}
    given = {"images": n * channels * size**2, "matrix": n * channels * 9 * out**2, **sides}
    yield Case("columns", "unfold", given | {"count": given["matrix"]}, "images", "matrix", again={"images": 9})
    yield Case("columns", "fold", given | {"count": given["images"]}, "matrix", "images")


def softmaxes():
    """One block per row of classes goes over it two or three times; the row stays in the first cache."""
    rows, shape = 3, {"classes": 300, "inner": 1}
    each, blocks, ignoring = arrays("scores prob", 900), (rows,), {"ignores": 1, "ignore": -1}
    twice = {"scores": 2, "prob": 1}
    yield Case(
        "softmax", "softmax", each | shape, "scores prob", "prob", again=twice, rewritten={"prob": 2}, blocks=blocks
    )
    back = arrays("y dy dx", 900) | shape
    yield Case("softmax", "softmax_back", back, "y dy", "dx", again={"y": 2, "dy": 2}, blocks=blocks)
    given = each | shape | ignoring | arrays("labels losses", rows)
    again = {"scores": 2, "prob": 1 + 1 / 300}  # the label's
    yield Case(
        "losses", "softmax_loss", given, "scores prob", "prob losses", "labels", again, {"prob": 2}, blocks=blocks
    )
    given = {"count": 900, **arrays("prob dx", 900), "labels": rows, "weight": 1, "divided": 1} | shape | ignoring
    given |= divisors(classes=300, inner=1)
    yield Case("losses", "softmax_loss_back", given, "prob", "dx", "labels weight divided")
    given = {"scores": 900, **arrays("labels hit", rows), "top_k": 5} | shape | ignoring
    yield Case("losses", "hits", given, "scores", "hit", "labels", {"scores": 1 + 256 / 300}, blocks=blocks)


def reports():
    one, ignoring = (1,), {"ignores": 1, "ignore": -1}
    given = {"count": N, "labels": N, "per_row": 1, "classes": 10, "layer": 1, "report": 4} | ignoring
    yield Case("losses", "check_labels", given, "labels", small="report", blocks=one)
    given = {"top": N, "count": N, "weight": 1, "first": 0, "report": 4}
    yield Case("losses", "add_loss", given, "top", small="report", blocks=one)
    given = {**arrays("values labels", N), "count": N, "divisor": 0, "top": 1, "divided": 1} | ignoring
    yield Case("losses", "mean_over_labels", given, "values labels", "top divided", blocks=one)


def transforms():
    """A window of each image is read; all images share one mean."""
    n, channels, size, crop = 2, 3, 20, 16
    given = {"x": n * channels * size**2, "y": n * channels * crop**2, "places": [2, 3, 1, 0, 4, 0]}
    given |= {"mean": channels * size**2, "means": channels, "planes": n * channels, "channels": channels}
    given |= {"rows": size, "columns": size, "height": crop, "width": crop, "scale": 1}
    for kind in ("uint8", "float32"):
        yield Case("transform", f"transform_{kind}", given, "x mean", "y", "places means", {"mean": n}, part="x",
                   blocks=(1, n * channels))  # fmt: skip


def parts():
    """Copies between a whole of three rows and eight parts."""
    widths = [3, 1, 40, 7, 90, 2, 5, 64]
    ends = [sum(widths[: k + 1]) for k in range(8)]
    names = " ".join(f"p{k}" for k in range(8))
    given = {"count": 3 * ends[-1], "whole": 3 * ends[-1], "pitch": ends[-1], "from": 0, "columns": ends[-1]}
    given |= {f"p{k}": 3 * width for k, width in enumerate(widths)} | {f"to{k}": end for k, end in enumerate(ends)}
    given |= divisors(columns=ends[-1])
    for unit in (2, 4, 16):
        shifts = (0,) if unit == 16 else (0, 1)
        yield Case("parts", f"gather_{unit}", given, names, "whole", shifts=shifts, unit=unit)
        yield Case("parts", f"scatter_{unit}", given, "whole", names, shifts=shifts, unit=unit)


def updates():
    """An update reads and writes values and histories; it reads gradients, and writes all but SGD's."""
    pieces = {"begins": [0, 901], "ends": [901, 2003], "owners": [0, 1]}
    of_parameters = {"rates": [1, 1], "decays": [0.1, 0.1], "ratios": [1, 1], "faulty": 1}
    numbers = {"rate": 0.1, "scale": 1, "normalise": 1, "momentum": 0.9, "momentum2": 0.9, "delta": 1e-8}
    numbers |= {"l1": 0, "ahead": 0}
    size, small = 2003, "begins ends owners rates decays ratios faulty"
    for rule in ("SGD", "Nesterov", "AdaGrad", "RMSProp", "AdaDelta", "Adam"):
        histories = "first second" if rule in ("AdaDelta", "Adam") else "first"
        given = {"second": None, **arrays(f"data diff {histories}", size), **pieces, **of_parameters, **numbers}
        writes = f"data {histories}" + " diff" * (rule != "SGD")
        yield Case("solvers", f"update_{rule}", given, f"data diff {histories}", writes, small)
    yield Case("solvers", "look", {"data": size, "faulty": 1, **pieces}, "data", small="begins ends owners faulty")
    tables = {"begins": pieces["begins"], "ends": pieces["ends"], **arrays("of_data of_diff", 2)}
    given = arrays("data diff", size) | tables
    yield Case("solvers", "lars_squares", given, "data diff", "of_data of_diff", "begins ends")
    given = {**arrays("of_data of_diff", 600), "wanted": [0, 1], "firsts": [0, 300, 600], **arrays("decays ratios", 2)}
    yield Case("solvers", "lars_ratios", given | {"normalise": 1, "trust": 1}, "of_data of_diff", "ratios",
               "wanted firsts decays")  # fmt: skip
    yield Case("solvers", "squares", {"count": size, "diff": size, "sums": 2}, "diff", "sums")
    yield Case(
        "solvers", "clip_factor", {"sums": 600, "parts": 600, "limit": 1, "factor": 1}, "sums", "factor", blocks=(1,)
    )
    yield Case("solvers", "clip", {"count": size, "diff": size, "factor": [0.5]}, "diff", "diff", "factor")


def collectives():
    """The reductions of device arrays: of two arrays, and of a node's."""
    for name, op in product(joins.NAMES, joins.OPERATIONS):
        given = {**arrays("target source arrived", N), "count": N}
        yield Case("collectives", f"{op}_{name}", given, "source arrived", "target")
        given = {"targets": [N, N], "to": 2, "sources": [N, N, N], "start": 0, "stop": N, "divisor": 1}
        yield Case("collectives", f"all_{op}_{name}", given | {"from": 3}, "sources", "targets")
    for name in ("float16", "float32", "float64"):
        given = {"values": N, "count": N, "divisor": 2}
        yield Case("collectives", f"divide_{name}", given, "values", "values")


def codecs():
    """Messages of fewer bytes from devices. All of a block of int8 read its scale."""
    scales = -(-N // BLOCK) * 4
    for codec, nbytes in (("bf16", 2 * N), ("float16", 2 * N), ("int8", scales + N)):
        message = {"message": nbytes, "count": N}
        again = {"message": 1 + (codec == "int8") * scales * BLOCK / nbytes}
        given = {**arrays("values lost", N), **message, "spreads": 0}
        yield Case("collectives", f"encode_{codec}", given, "values lost", "message lost")
        given = {"values": N, **message}
        yield Case("collectives", f"decode_{codec}", given, "message", "values", again=again)
        for op in joins.OPERATIONS:
            given = {**arrays("target source", N), **message}
            yield Case("collectives", f"decode_{op}_{codec}", given, "source message", "target", again=again)


FAMILIES = (
    elementwise, dropout, layouts, folds, normalisations, normalisations_last, statistics, rows, lrns, poolings,
    poolings_last, poolings_known, columns, softmaxes, reports, transforms, parts, updates, collectives,
    codecs,
)  # fmt: skip
CASES = [case for family in FAMILIES for case in family()]
