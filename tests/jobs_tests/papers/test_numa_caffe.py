"""NUMA-Caffe's figures: layers on NUMA nodes, remote loads, memory: counts by hand, and short measurements."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from paper_figures import FOLDERS, ROOT, module, verdicts

from scaffe import papers

MIB = 1 << 20
pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


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
    one, four = (figure.bvlc(conv2, box, n, 128) - 3 * 128 * figure.fork(box, n) for n in (1, 4))
    assert one == pytest.approx(128 * conv2.element_wise / box.core)
    assert four - one == pytest.approx(128 * 3 * conv2.columns * 0.75 * (173.7 / 69.2 - 1) / box.core)


def test_slower_solvers_and_a_bvlc_that_scales_are_not_reproduced() -> None:
    figure = module("numa_caffe_9")
    two, threads, one = (list(figure.WAYS.values())[k] for k in (2, 1, 0))
    modelled = figure.FIGURE.model({})

    def verdicts(found: dict) -> dict[str, str]:
        measured = {"AlexNet": {label: [seconds] * 3 for label, seconds in found.items()}}
        return {check.what: check.verdict for check in figure.FIGURE.check(measured, modelled)}

    good = verdicts({one: 2.0, threads: 1.1, two: 1.05})
    bad = verdicts({one: 2.0, threads: 1.1, two: 1.3})
    whats = "AlexNet: 2 solvers over 1 with 2 threads, measured", "AlexNet: speedup of 2 solvers over 2, measured"
    assert [good[what] for what in whats] == [papers.REPRODUCED] * 2
    assert [bad[what] for what in whats] == [papers.NOT_REPRODUCED] * 2
    modelled["rates"]["AlexNet"]["BW"]["BVLC"][2] *= 2
    assert verdicts({one: 2.0, threads: 1.1, two: 1.0})["AlexNet, BW: BVLC, 4 nodes over 1"] == papers.NOT_REPRODUCED


def test_remote_loads_are_those_counted_by_hand() -> None:
    figure = module("numa_caffe_5")
    bottoms = 4 * (3 * 32 * 32 + 32 * 16 * 16 + 32 * 8 * 8)
    tops = 4 * (32 * 32 * 32 + 32 * 16 * 16 + 64 * 8 * 8)
    found = figure.functions("CIFAR-10")
    assert (found["im2col_cpu"], found["weight_cpu_gemm"], found["pooling, forward"]) == (2 * bottoms, tops, tops)
    assert found["forward_cpu_gemm"] == 0  # columns fit the cache
    assert figure.remote("NUMA", "CIFAR-10", 4) == 6 * 4 * 145_578 + 0.75 * 128 * 4 * 3 * 32 * 32
    assert figure.remote("Intel", "CIFAR-10", 1) == figure.remote("BVLC", "CIFAR-10", 1) == 0


def test_a_fall_is_checked_by_what_is_left() -> None:
    figure = module("numa_caffe_5")
    model = figure.FIGURE.model({})
    what = "table 5, CIFAR-10: Intel, remote loads, what is left of BVLC's, %"
    for fall, verdict in ((91.0, papers.REPRODUCED), (82.3, papers.NOT_REPRODUCED)):  # 9.8 % are left in the paper
        model["falls"]["Intel"]["CIFAR-10"] = fall
        assert verdicts(figure, {}, model)[what] == verdict


def test_what_leaves_a_model_no_choice_is_no_evidence() -> None:
    for name, texts in {"numa_caffe_3": ("table 3", "table 6"), "numa_caffe_5": ("remote loads rise",)}.items():
        found = verdicts(module(name))
        fitted = {what for what, verdict in found.items() if verdict == papers.NO_EVIDENCE}
        assert fitted == {what for what in found if any(text in what for text in texts)}


def test_processes_have_weights_and_spread_pages_the_links_of_all_nodes() -> None:
    figure = module("numa_caffe_3")
    weights = 4 * 60_965_224
    assert figure.FIGURE.memory(2) - figure.FIGURE.memory(1) == pytest.approx(3 * weights)
    base = figure.FIGURE.here(0, 1, 1)
    assert figure.FIGURE.here(10, 3, 1) - base == pytest.approx(30 + 2 * 2 * weights)
    assert figure.FIGURE.here(0, 1, 3) - base == pytest.approx(2 * weights)
    box = replace(figure.BOXES["SB"], memory=1e9, link=1e8)
    assert figure.spread_pages(8e8, box, 4) == pytest.approx(2e8 * 0.75 / 1e8)


def test_layers_that_compute_gain_nothing_and_those_that_move_what_memory_gives() -> None:
    figure = module("numa_caffe_12")
    computes = replace(layer("ip1"), moved=0.0, weights=0.0, products=((1, 10**6, 10**6, 1),))
    moves = replace(layer("pool1"), moved=1e9, bottom=0.0, top=0.0)
    both = [[figure.seconds(system, each, 128) for system in ("Intel", "NUMA")] for each in (computes, moves)]
    assert both[0][0] == pytest.approx(both[0][1], rel=1e-6)
    assert both[1][1] == pytest.approx(32e9 / figure.BOX.memory, rel=1e-3)
    assert both[1][0] == pytest.approx(128e9 * 0.84 * 0.75 / figure.BOX.link, rel=1e-3)
    assert figure.longest([1.0] * 32) == 50
    assert figure.summed([1, 3]) == [75, 100]


def test_private_memory_has_what_a_process_writes_and_a_thread_its_gradients() -> None:
    figure = module("numa_caffe_3")
    before = figure.private()
    kept = np.ones(512 * MIB, np.uint8)  # much beside what this process frees meanwhile
    assert 490 * MIB < figure.private() - before < 530 * MIB and kept.all()
    text = "import numa_caffe_3 as figure; figure.NET, figure.BATCH = 'lenet', 8; figure.train('2')"
    path = os.pathsep.join([str(ROOT), *FOLDERS])
    command = sys.executable, "-c", text
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"PYTHONPATH": path})
    found = json.loads(done.stdout.splitlines()[-1])
    assert found[1] - found[0] > 4 * 4 * 431_080  # weights, history, two gradients


def test_the_layers_of_cifar_are_timed_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("numa_caffe_12")
    monkeypatch.setattr(figure, "HERE", {"CIFAR-10": (2, 1)})
    found = figure.layers("CIFAR-10")
    assert set(found) == {part.name for part in module("numa_nodes").parts("CIFAR-10")}
    assert all(milliseconds >= 0 for milliseconds in found.values()) and found["conv2"] > 0


def test_each_ratio_of_the_text_is_drawn_at_its_height() -> None:
    picture = pytest.importorskip("matplotlib.figure").Figure()
    figure, ratios = module("numa_caffe_9"), module("numa_ratios")
    rates = figure.FIGURE.model({})["rates"]
    figure.FIGURE.draw(picture, {}, {"rates": rates})
    squares = {}
    for axes in picture.axes:
        marks = [line for line in axes.get_lines() if line.get_marker() in ("s", "D")]
        squares[axes.get_title().partition(" (")[0]] = [float(line.get_ydata()[0]) for line in marks]
    assert sum(map(len, squares.values())) == len(ratios.OVER)
    assert squares["GoogLeNet, SB"] == pytest.approx([3.6, 2 * intel(rates, "GoogLeNet", "SB"), 8.0])
    hbm = rates["CIFAR-10"]["KNL, HBM"]["Intel"][-1] / rates["CIFAR-10"]["KNL"]["BVLC"][0]
    assert squares["CIFAR-10, KNL"] == pytest.approx([1.06 * hbm])


def intel(rates: dict, net: str, box: str) -> float:
    """Return Intel-Caffe's modelled rate on all nodes over BVLC's on one."""
    return rates[net][box]["Intel"][-1] / rates[net][box]["BVLC"][0]
