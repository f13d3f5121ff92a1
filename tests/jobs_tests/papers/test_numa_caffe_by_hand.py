"""NUMA-Caffe's models of remote loads, of solvers' times and of ratios, on parts and machines that a hand can count."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
from paper_figures import module

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]

FAST = 1e30
FORK = 2 * (3 * 5e-8 + 2 * 3e-7)  # 8 cores of 4 nodes: a tree of 3 lines in a node, of 2 between nodes, there and back
# CIFAR-10's quick net, bytes of an image: each convolution's bottom, top and columns.
BOTTOMS = 4 * 3 * 32 * 32, 4 * 32 * 16 * 16, 4 * 32 * 8 * 8
TOPS = 4 * 32 * 32 * 32, 4 * 32 * 16 * 16, 4 * 64 * 8 * 8
COLUMNS = 4 * 75 * 32 * 32, 4 * 800 * 16 * 16, 4 * 800 * 8 * 8
POOLED = 4 * 32 * 16 * 16, 4 * 32 * 8 * 8, 4 * 64 * 4 * 4
BACK = 2 * POOLED[0] + POOLED[1] + POOLED[2]  # gradients, and pool1's places; the others are means
WEIGHTS = 4 * 145_578


def part(kind: str = "Convolution", **fields: object):
    """Return a part that does nothing but what the fields say."""
    nothing = {"products": (), "bottom": 0.0, "top": 0.0, "ways": 3, "moved": 0.0, "columns": 0.0, "weights": 0.0}
    return module("numa_nodes").Part("made up", kind, **(nothing | fields))


def box(**fields: float):
    """Return a machine of 4 nodes of 8 cores, which only the fields slow down."""
    return module("numa_nodes").Box(
        4, 8, **(dict.fromkeys(("flops", "core", "memory", "link", "cache"), FAST) | fields)
    )


def inner() -> float:
    """Return what the quick net's inner products load for 128 images: weights, bottoms and tops twice."""
    weights = 4 * (1024 * 64 + 64 + 64 * 10 + 10)
    return 2 * weights + 128 * 4 * 2 * (1024 + 64 + 64 + 10)


def shared() -> float:
    """Return what BVLC's threads load for an image on 4 nodes; conv1 computes no gradient of the data.

    Once, from three of four nodes: the columns forward, for the weights' gradient and of their own gradient. By three
    nodes: the top's gradient, for each gradient.
    """
    first = 0.75 * 2 * COLUMNS[0] + 3 * TOPS[0]
    return first + sum(0.75 * 3 * columns + 6 * top for columns, top in list(zip(COLUMNS, TOPS, strict=True))[1:])


def loaded() -> float:
    """Return what Intel's threads load for an image but in inner products; columns fit the cache."""
    convolutions = 2 * sum(BOTTOMS) + sum(TOPS)
    pooling = sum(TOPS) + BACK
    relu = 3 * (POOLED[0] + TOPS[1] + TOPS[2])  # forward one, back two
    return convolutions + pooling + relu + 4 * (11 + 11 + 1)  # the loss: its bottoms, and both ways' gradients


def test_a_convolution_whose_columns_do_not_fit_loads_them_again_for_each_product() -> None:
    by_function = module("numa_caffe_5").by_function
    three = part(bottom=10.0, top=20.0, columns=30e6)
    two = replace(three, ways=2)
    small = part(bottom=10.0, top=20.0)  # a kernel of 1 x 1: its image is the factor
    rows = {"im2col_cpu": 20, "forward_cpu_gemm": 30e6, "weight_cpu_gemm": 20 + 30e6, "backward_cpu_gemm": 30e6}
    assert by_function(three, 2) == rows  # 2 threads' columns are 60 MB, the cache 35
    assert by_function(two, 2) == rows | {"backward_cpu_gemm": 0}
    image = {"im2col_cpu": 0, "forward_cpu_gemm": 10, "weight_cpu_gemm": 30, "backward_cpu_gemm": 0}
    assert by_function(small, 2) == image


def test_the_quick_net_s_remote_loads_are_those_of_each_layer() -> None:
    figure = module("numa_caffe_5")
    bvlc, intel = 0.75 * inner() + 128 * shared(), 0.75 * (inner() + 128 * loaded())
    numa = 6 * WEIGHTS + 0.75 * 128 * BOTTOMS[0]
    for system, wanted in (("BVLC", bvlc), ("Intel", intel), ("NUMA", numa)):
        assert figure.remote(system, "CIFAR-10", 4) == pytest.approx(wanted), system
    found = figure.FIGURE.model({})
    assert found["falls"]["Intel"]["CIFAR-10"] == pytest.approx(100 * (1 - intel / bvlc))
    assert found["falls"]["NUMA"]["CIFAR-10"] == pytest.approx(100 * (1 - numa / bvlc))
    assert found["update"] == pytest.approx(100 * 6 * WEIGHTS / numa)
    each = loaded() + inner() / 128
    assert found["functions"]["weight_cpu_gemm"] == pytest.approx(100 * sum(TOPS) / each)
    assert found["functions"]["pooling, backward"] == pytest.approx(100 * BACK / each)


def test_an_inner_product_of_bvlc_takes_its_operations_its_memory_or_the_links() -> None:
    figure = module("numa_caffe_9").FIGURE
    each = part("InnerProduct", products=((1, 100, 1000, 1),) * 3, moved=7.0, weights=50.0)
    nbytes, operations = 10 * 7 + 3 * 50, 10 * 3 * 2 * 100 * 1000  # weights in each way, blobs of each image
    assert figure.bvlc(each, box(memory=2.0), 4, 10) == pytest.approx(nbytes / 2)
    assert figure.bvlc(each, box(link=2.0), 4, 10) == pytest.approx(0.75 * nbytes / 2)
    assert figure.bvlc(each, box(flops=2.0), 4, 10) == pytest.approx(operations / (32 * 2 * 0.7))


def test_a_convolution_of_bvlc_takes_the_longer_of_operations_and_links_and_a_fork_for_each_group() -> None:
    figure = module("numa_caffe_9").FIGURE
    each = part(products=((16, 192, 5, 2),), ways=1)  # 32 tiles of 16 x 6, one for each thread
    forks = 10 * 2 * FORK
    operations = 10 * 2 * 16 * 192 * 5 * 2 / (32 * 1e6 * 0.7)
    crossing = 10 * 4 * 2 * (0.75 * 5 * 192 + 0.75 * 16 * 192) / 1e6  # three of four nodes' images, and results
    assert figure.bvlc(each, box(flops=1e6), 4, 10) == pytest.approx(operations + forks)
    assert figure.bvlc(each, box(link=1e6), 4, 10) == pytest.approx(crossing + forks)
    assert figure.bvlc(each, box(flops=1e6, link=1e6), 4, 10) == pytest.approx(max(operations, crossing) + forks)


def test_intel_s_threads_have_whole_images_of_convolutions_and_parts_of_inner_products() -> None:
    figure = module("numa_caffe_9").FIGURE
    product = ((1, 100, 1000, 1),)
    operations = 2 * 100 * 1000 / (1e9 * 0.7)
    seconds = {
        kind: figure.intel([part(kind, products=product)], box(flops=1e9), 4, 40, 0.0) - 2 * FORK
        for kind in ("Convolution", "InnerProduct")
    }
    assert seconds == pytest.approx({"Convolution": 2 * operations, "InnerProduct": 1.25 * operations})
    weights = part("InnerProduct", products=product, weights=50.0)
    near = 2 * 2 * 3 * 5e-8  # the fork of one node
    assert figure.intel([weights], box(memory=2.0), 1, 40, 30.0) - near == pytest.approx((3 * 50 + 30) / 2)
    assert figure.intel([weights], box(core=2.0), 4, 40, 30.0) - 2 * FORK == pytest.approx(30 / (32 * 2))


def idle(figure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the figure have a net of one layer that does nothing, with weights of 1,000 bytes."""
    monkeypatch.setattr(figure, "parts", lambda net: (part("ReLU"),))
    monkeypatch.setattr(figure, "weights_of", lambda net: 1000.0)


def test_one_solver_updates_on_its_node_by_memory_or_cores_and_bvlc_in_one_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = module("numa_caffe_9")
    idle(figure, monkeypatch)
    seconds = figure.FIGURE.seconds
    near, starts = 2 * 2 * 3 * 5e-8, (1 + 8) * 1e-5
    for slow, wanted in (({"memory": 2.0}, 5500), ({"core": 2.0}, 687.5), ({"memory": 2.0, "core": 2.0}, 5500)):
        found = seconds("NUMA", "AlexNet", box(**slow), 1)  # 11 passes over 1,000 bytes; 8 cores
        assert found - near - starts == pytest.approx(wanted), slow
    assert seconds("BVLC", "AlexNet", box(core=2.0), 4) == pytest.approx(11_000 / 2)


def test_ratios_are_those_of_the_nodes_that_a_key_names() -> None:
    ratios = module("numa_ratios")
    rates = {"GoogLeNet": {"SB": {"NUMA": [1.0, 2.0, 6.0], "Intel": [1.0, 1.0, 2.0]}}}
    found = [ratios.over(rates, ("GoogLeNet", "SB", "NUMA", "Intel", nodes)) for nodes in (1, 2, 4, -1)]
    assert found == [1, 2, 3, 3]


def test_scaling_compares_4_nodes_with_1_or_2_and_all_nodes_with_linear() -> None:
    scaling = module("numa_ratios").scaling
    rates = {"BVLC": [1.0, 3.0, 1.05, 1.2], "Intel": [2.0, 3.0, 3.6, 4.8], "NUMA": [2.0, 4.0, 8.0, 14.0]}
    found = {check.what.partition(": ")[2]: check.found for check in scaling("AMD", rates)}  # 8 nodes
    linear = {"NUMA, speedup of all nodes over their number": 7 / 8}
    assert found == {"BVLC, 4 nodes over 1": 1.05, **linear, "Intel / BVLC, all nodes": 4.0}
    four = {name: each[:3] for name, each in rates.items()}
    found = {check.what.partition(": ")[2]: check.found for check in scaling("SB", four)}
    assert found["Intel, 4 nodes over 2"] == pytest.approx(1.2) and found[next(iter(linear))] == 1


def test_the_greatest_ratios_are_those_of_the_plots_which_are_without_hbm() -> None:
    figure = module("numa_caffe_9")
    flat = dict.fromkeys(figure.SYSTEMS, [1.0] * 4)
    rates = {net: {name: flat for name in figure.BOXES} for net in figure.NETS}
    rates["AlexNet"] = {name: flat | {"NUMA": [14.0] * 4} for name in figure.BOXES}
    rates["AlexNet"][figure.HBM] = flat | {"NUMA": [28.0] * 4}
    found = {check.what: check.found for check in figure.FIGURE.check({}, {"rates": rates})}
    assert found["AlexNet: NUMA / BVLC, up to"] == 14


def test_a_layer_s_gain_is_intel_s_time_over_numa_s_and_a_roofline_has_the_longer_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = module("numa_caffe_12")
    monkeypatch.setattr(
        figure, "seconds", lambda system, layer, batch: {"BVLC": 9.0, "Intel": 3.0, "NUMA": 1.0}[system]
    )
    assert set(figure.FIGURE.model({})["gains"].values()) == {3.0}
    works = {"one": SimpleNamespace(flops=(10.0, 20.0), moved=(4.0, 100.0))}
    monkeypatch.setattr(figure.shapes, "works", lambda name: works)
    assert figure.roofline("CIFAR-10", {"flops": 10.0, "bytes": 1.0}) == {"one": max(1, 4) + max(2, 100)}
    times = {"CIFAR-10": [dict.fromkeys(figure.CONVOLUTIONS, 3.0), dict.fromkeys(figure.CONVOLUTIONS, 2.0)]}
    assert set(figure.threads_gain({"times": times}).values()) == {1.5}


def test_a_layer_s_time_is_that_of_both_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("numa_caffe_12")
    monkeypatch.setattr(figure, "HERE", {"CIFAR-10": (1, 1)})
    count = len(module("numa_nodes").parts("CIFAR-10"))
    passes = SimpleNamespace(forward=[1.0] * count, backward=[2.5] * count)
    monkeypatch.setattr("scaffe.tools.benchmark.measure", lambda net, iterations: passes)
    assert set(figure.layers("CIFAR-10").values()) == {3.5}
