"""NUMA-Caffe's models: layers on NUMA nodes and remote loads, on parts and machines that a hand can count."""

from __future__ import annotations

from dataclasses import replace
from types import ModuleType

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
    rates = dict.fromkeys(("flops", "core", "memory", "link", "cache"), FAST)
    return module("numa_nodes").Box(4, 8, **(rates | fields))


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


def layer(name: str):
    return next(part for part in module("numa_nodes").parts("CIFAR-10") if part.name == name)


def test_a_convolution_s_products_and_columns_are_those_counted_by_hand() -> None:
    domains, shapes = module("numa_nodes"), module("shapes")
    pixels, length = 16 * 16, 32 * 5 * 5
    products = (32, pixels, length, 1), (32, length, pixels, 1), (length, pixels, 32, 1)
    conv2 = layer("conv2")
    assert conv2.products == products and conv2.columns == 4 * length * pixels
    image = 4 * 32 * pixels  # of the bottom, and of the top
    assert (conv2.bottom, conv2.top, conv2.moved) == (image, image, 5 * image)
    assert conv2.element_wise == 3 * (image + conv2.columns)  # im2col twice, col2im
    assert [part.ways for part in domains.parts("CIFAR-10")[:3]] == [1, 1, 2]  # two inputs, conv1
    for net, name in domains.NETS.items():
        counted = sum(sum(work.flops) for work in shapes.works(name).values())
        assert sum(part.flops for part in domains.parts(net)) == pytest.approx(counted)
    grouped = next(part for part in domains.parts("AlexNet") if part.name == "conv2")
    assert grouped.products[0] == (128, 27 * 27, 48 * 25, 2) and grouped.columns == 4 * 2 * 48 * 25 * 27 * 27
    images = [part for part in domains.parts("GoogLeNet") if part.name.endswith("/1x1")]
    assert len(images) == 9 and not any(part.columns or part.element_wise for part in images)  # no im2col


def test_threads_of_all_nodes_load_one_factor_once_and_the_other_everywhere() -> None:
    conv2 = layer("conv2")
    columns, top = conv2.columns, conv2.top
    forward, of_weights, of_bottom = conv2.fetched(4)
    assert forward == 0.75 * columns  # the result is wider than high: its columns are divided
    assert of_weights == 0.75 * columns + 3 * top
    assert of_bottom == 3 * top  # higher than wide
    assert conv2.fetched(1) == [0, 0, 0]
    assert conv2.results() == [top, 0, columns]


def test_a_thread_computes_whole_tiles() -> None:
    spread = module("numa_nodes").spread
    assert spread((16, 48, 100, 1), 8) == 1  # a tile for each
    assert spread((16, 54, 100, 1), 8) == 9 / 16  # one has two
    assert spread((16, 6, 100, 1), 8) == 1 / 8


def test_columns_go_to_memory_where_the_threads_do_not_fit_the_cache() -> None:
    conv2 = layer("conv2")
    assert conv2.unfolded(10 * conv2.columns, 10) == 0
    assert conv2.unfolded(10 * conv2.columns - 1, 10) == 6 * conv2.columns


def test_bytes_on_the_first_node_wait_for_its_memory_its_links_or_each_other() -> None:
    figure = module("numa_caffe_9").FIGURE
    box = module("numa_nodes").Box(4, 8, 1e9, 1e9, 1e9, 1e9, 1e6)
    assert figure.first_touch(1e9, box, 1) == 1
    assert figure.first_touch(1e9, replace(box, link=1e8), 4) == pytest.approx(0.84 * 0.75 * 10)
    assert figure.first_touch(1e9, replace(box, link=1e30), 2) == pytest.approx(0.84)
    assert figure.first_touch(1e9, replace(box, link=1e30), 4) == pytest.approx(4.75 / 4)
    assert figure.load("scaling factor", 8) == 2 * 4.75 and figure.load("mean load", 8) == 173.7 / 69.2


def test_a_solver_on_each_node_has_its_part_of_the_batch_and_the_exchange() -> None:
    figure, domains = module("numa_caffe_9").FIGURE, module("numa_nodes")
    box = replace(domains.BOXES["SB"], core=1e30, memory=1e30, cache=1e30)
    update = domains.weights("CIFAR-10") / box.link
    one, four = (figure.seconds("NUMA", "CIFAR-10", box, n) for n in (1, 4))
    starts = [figure.value("thread") * (n + 8) for n in (1, 4)]
    forks = 2 * len(domains.parts("CIFAR-10")) * figure.fork(box, 1)
    exchange = (2 + 3) * update
    assert one - forks - starts[0] == pytest.approx(4 * (four - forks - starts[1] - exchange))
    flops = 128 * sum(part.flops for part in domains.parts("CIFAR-10"))
    assert one - forks - starts[0] == pytest.approx(flops / (8 * box.flops * 0.7))


def test_bvlc_computes_columns_in_one_thread_and_others_make_them_late() -> None:
    figure, domains = module("numa_caffe_9").FIGURE, module("numa_nodes")
    box = replace(domains.BOXES["SB"], flops=1e30, link=1e30)
    conv2 = layer("conv2")
    one, four = (figure.bvlc(conv2, box, n, 128) - 6 * 128 * figure.fork(box, n) for n in (1, 4))
    assert one == pytest.approx(128 * conv2.element_wise / box.core)
    assert four - one == pytest.approx(128 * 3 * conv2.columns * 0.75 * (173.7 / 69.2 - 1) / box.core)


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


def test_one_node_of_bvlc_and_all_nodes_of_intel_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, each = module("numa_caffe_9").FIGURE, {"BVLC": 7.0, "Intel": 5.0, "NUMA": 1.0}
    monkeypatch.setattr(figure, "seconds", lambda system, net, box, nodes: nodes * each[system])
    assert (figure.over("BVLC", "AMD"), figure.over("Intel", "AMD")) == (7 / 8, 5)


def idle(figure: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the figure have a net of one layer that does nothing, with weights of 1,000 bytes."""
    monkeypatch.setattr(figure, "parts", lambda net: (part("ReLU"),))
    monkeypatch.setattr(figure, "weights_of", lambda net: 1000.0)


def test_a_solver_updates_by_memory_or_cores_and_bvlc_in_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("numa_caffe_9")
    idle(figure, monkeypatch)
    seconds = figure.FIGURE.seconds
    near, starts = 2 * 2 * 3 * 5e-8, (1 + 8) * 1e-5
    for slow, wanted in (({"memory": 2.0}, 5500), ({"core": 2.0}, 687.5), ({"memory": 2.0, "core": 2.0}, 5500)):
        found = seconds("NUMA", "AlexNet", box(**slow), 1)  # 11 passes over 1,000 bytes; 8 cores
        assert found - near - starts == pytest.approx(wanted), slow
    assert seconds("BVLC", "AlexNet", box(core=2.0), 4) == pytest.approx(11_000 / 2)


def test_the_threads_of_bvlc_meet_after_each_panel_and_its_one_thread_reads_what_others_wrote() -> None:
    figure = module("numa_caffe_9").FIGURE
    long = part(products=((16, 192, 1000, 1),), ways=1)
    assert figure.bvlc(long, box(), 4, 10) == pytest.approx(10 * 4 * FORK)  # 1,000 in panels of 256
    pooling = part("Pooling", bottom=8.0, moved=20.0)
    late = 8 * 0.75 * (173.7 / 69.2 - 1)  # three of four nodes' threads wrote its bottom
    assert figure.bvlc(pooling, box(core=2.0), 4, 10) == pytest.approx(10 * (20 + late) / 2)


def test_the_quick_net_s_remote_loads_are_those_of_each_layer() -> None:
    figure = module("numa_caffe_5")
    bvlc, intel = 0.75 * inner() + 128 * shared(), 0.75 * (inner() + 128 * loaded())
    numa = 6 * WEIGHTS + 0.75 * 128 * BOTTOMS[0]
    for system, wanted in (("BVLC", bvlc), ("Intel", intel), ("NUMA", numa)):
        assert figure.remote(system, "CIFAR-10", 4) == pytest.approx(wanted), system
    found = figure.FIGURE.model({})
    assert found["Intel"]["CIFAR-10"] == pytest.approx(100 * (1 - intel / bvlc))
    assert found["NUMA"]["CIFAR-10"] == pytest.approx(100 * (1 - numa / bvlc))


def test_columns_that_do_not_fit_are_loaded_again_and_a_small_kernel_loads_its_image() -> None:
    figure = module("numa_caffe_5")
    three = part(bottom=10.0, top=20.0, columns=30e6)
    assert figure.loaded(three, 2) == 20 + 20 + 3 * 30e6  # 2 threads' columns are 60 MB, the cache 35
    assert figure.loaded(replace(three, columns=0.0), 2) == 20 + 20


def test_spread_pages_wait_for_the_links_of_all_nodes() -> None:
    figure = module("numa_caffe_3").FIGURE
    slow = replace(module("numa_nodes").BOXES["SB"], memory=1e9, link=1e8)
    assert figure.spread_pages(8e8, slow, 4) == pytest.approx(2e8 * 0.75 / 1e8)


def test_layers_that_compute_gain_nothing_and_those_that_move_what_memory_gives() -> None:
    figure = module("numa_caffe_12")
    computes = replace(layer("ip1"), moved=0.0, weights=0.0, products=((1, 10**6, 10**6, 1),))
    moves = replace(layer("pool1"), moved=1e9, bottom=0.0, top=0.0)
    both = [[figure.seconds(system, each) for system in ("Intel", "NUMA")] for each in (computes, moves)]
    assert both[0][0] == pytest.approx(both[0][1], rel=1e-6)
    assert both[1][1] == pytest.approx(32e9 / figure.BOX.memory, rel=1e-3)
    assert both[1][0] == pytest.approx(128e9 * 0.84 * 0.75 / figure.BOX.link, rel=1e-3)
