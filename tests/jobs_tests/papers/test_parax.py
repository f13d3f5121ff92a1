"""ParaX's figures: nets and passes against counts by hand, and short measurements."""

from __future__ import annotations

import importlib
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest
from paper_figures import missed, module, verdicts

from scaffe import papers
from scaffe.parallel.instances.simulation.layers import on_machine

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def learned(net: object) -> int:
    return sum(b.count for layer in net.layers for k, b in enumerate(layer.blobs) if k not in layer.statistics)


def test_the_papers_nets_have_the_parameters_of_their_papers() -> None:
    shapes, nets = module("shapes"), module("paper_nets")
    for made in nets.MODELS:
        with shapes.built(made.name, training=True) as net:
            assert learned(net) == made.parameters
    assert nets.get("mobilenet_v2").parameters == 3_504_872  # torchvision's, at width 1
    convolutions = 9 * (3 * 16 + 16 * 16**2 + 16 * 32 + 15 * 32**2 + 32 * 64 + 15 * 64**2) + 16**2 + 16 * 32 + 32 * 64
    scales = 2 * (16 * 16 + (16 + 15 * 32) + (32 + 15 * 64) + 64)
    assert nets.get("cifar_resnet50").parameters == convolutions + scales + 64 * 10 + 10


def test_word_lm_s_ratio_has_the_decoder_s_product_and_the_softmax() -> None:
    figure = module("parax_6")
    products, others = figure.lstm(1e12, 1e11)
    decoder, softmax = 2 * 64 * 35 * 650 * 10_000 / 1e12, 4 * 2 * 64 * 35 * 10_000 / 1e11
    ratio = figure.with_decoder(1e12, 1e11, 0.0)
    assert ratio == pytest.approx((2 * products + decoder) / (2 * others + softmax))
    assert figure.with_decoder(1e30, 1e30, 1.0) == pytest.approx((2 * 35 * 2 + 1) / (2 * 35 * 11 + 1))


def test_each_net_has_the_same_checks_and_each_ratio_s_bound_can_be_missed() -> None:
    figure = module("parax_6")
    model = {"ratios": {"CPU": {"ResNet-50": 1.0, "LSTM": 1.4}, "GPU": {"ResNet-50": 2.5, "LSTM": 1.5}}}
    one, two = {"ratios": {"ResNet-50": [3.0, 3.0], "LSTM": [9.0, 9.0]}}, {"ratios": {"ResNet-50": [3, 0.1]}}
    assert not missed(figure, one, model) and missed(figure, two, model) == ["ResNet-50"]
    lower = model | {"ratios": model["ratios"] | {"GPU": {"ResNet-50": 2.5, "LSTM": 1.3}}}
    assert missed(figure, one, lower) == ["GPU's ratio over the CPU's, least of the nets"]
    fitted = {check.what.partition(":")[0] for check in figure.FIGURE.check({}, model) if check.fitted}
    assert fitted == {"LSTM", "GPU, compute-intensive over access-intensive, greatest"}


def test_starts_of_kernels_are_the_time_of_a_net_without_work() -> None:
    figure = module("parax_6")
    far = 1e30
    assert figure.lstm(far, far, 1.0) == pytest.approx((35 * 2, 35 * 11))
    ratio = figure.ratios(far, far, 1.0)
    assert ratio["LSTM"] == pytest.approx(2 / 11) and ratio["NCF"] == pytest.approx(4 / 11)  # NCF's layers of each kind


def test_an_lstm_s_products_are_timed_apart_from_the_rest_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, models = module("parax_6"), importlib.import_module("scaffe.models")
    monkeypatch.setattr(figure, "LEAST", 0.0)
    monkeypatch.setattr(figure, "NETS", {"LSTM": "small"})
    small = models.get("word_lm").sized(hidden=8, steps=3)
    monkeypatch.setattr(figure.models, "get", lambda name: small)
    timed = figure.Timed("LSTM", 1)
    assert [timed.net.layers[i].type for i in timed.computing] == ["LSTM", "LSTM"] and not timed.moving
    assert timed.ratio() > 0 and timed.inside > 0
    timed.net.close()


def test_word_lm_s_operations_are_those_of_its_layers() -> None:
    words = module("paper_word_lm")
    forward, both = words.passes(True), words.passes(False)
    work = importlib.import_module("shapes").works("word_lm")
    products = sum(one.flops[0] for one in work.values())
    assert sum(cost.flops for cost in forward.costs) / forward.batch == pytest.approx(products)
    assert sum(cost.flops for cost in both.costs) == pytest.approx(3 * sum(cost.flops for cost in forward.costs))
    summed = sum(both.gradients) / 4
    assert summed == pytest.approx(sum(one.gradients for one in work.values()) / 4, rel=0.01)  # less the biases


def test_gradients_take_turns_in_buffers_that_fit() -> None:
    shapes, memory = module("shapes"), module("parax_18")
    ip2, ip1, pool2, conv2, weights, pool1 = 10, 500, 50 * 4 * 4, 50 * 8 * 8, 50 * 20 * 5 * 5, 20 * 12 * 12
    assert shapes.pooled("lenet", 1) == 4 * (ip2 + ip1 + pool2 + conv2 + weights + pool1)  # conv1's in conv2's weights'
    assert memory.FIGURE.value("gradients here") == shapes.pooled(memory.HERE, memory.IMAGES)


def test_instances_add_blobs_and_gradients_and_share_weights_and_their_layouts() -> None:
    shapes, memory = module("shapes"), module("parax_18")
    parameters, one, two, three = shapes.parameters("mobilenet"), *map(memory.here, (1, 2, 3))
    own = parameters + 4 * shapes.activations("mobilenet") + shapes.pooled("mobilenet", 4)
    assert two - one == pytest.approx(own + parameters) and three - two == pytest.approx(own)


def test_instances_add_the_memory_that_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = module("parax_18")
    monkeypatch.setattr(memory, "HERE", "cifar10_quick")
    monkeypatch.setattr(memory, "IMAGES", 100)
    added = memory.resident(4) - memory.resident(1)
    assert added == pytest.approx(memory.here(4) - memory.here(1), rel=0.2)


def test_memory_that_no_count_has_is_refused() -> None:
    figure = module("parax_18").FIGURE
    model = {"MB": [200.0, 300.0, 500.0, 900.0], "GB": {n: [200.0] for n in ("ResNet-50", "MobileNet-v1")}}
    model |= {"1792": 124.0, "fit": {}, "rates": {}}
    for times, verdict in ((1.0, papers.REPRODUCED), (1.3, papers.NOT_REPRODUCED)):
        measured = {"MB": [1000 + times * (one - 200) for one in model["MB"]]}  # 1000: interpreter and libraries
        checks = [check for check in figure.check(measured, model) if "here" in check.what]
        assert [check.verdict for check in checks] == [verdict] * 3


def test_throughput_that_rises_with_the_batch_is_not_flat() -> None:
    memory = module("parax_18")
    model = {"MB": [], "GB": {n: [200.0] for n in ("ResNet-50", "MobileNet-v1")}, "1792": 124.0, "fit": {}}
    linear = {"training": [float(n) for n in memory.TRAINED], "inference": [float(n) for n in memory.INFERRED]}
    flat = {"training": [1.0, 1.3, 1.35], "inference": [1.0, 1.1, 1.11]}
    found = verdicts(memory, {}, model | {"rates": {"linear": linear, "flat": flat}})
    gains = [verdict for what, verdict in found.items() if "gain past" in what]
    assert gains == [papers.NOT_REPRODUCED] * 2 + [papers.REPRODUCED] * 2


def test_bytes_that_cross_to_memory_are_counted_access_by_access() -> None:
    figure = module("parax_15")
    for n in (2, 4, 7):
        cached, uncached = ring_by_hand(n, True), ring_by_hand(n, False)
        assert figure.crossed(figure.RING, n) == pytest.approx(cached / n)
        assert figure.crossed(figure.RING, n, cached=False) == pytest.approx(uncached / n)
        assert figure.crossed(figure.PS, n) == 2 * figure.crossed(figure.GS, n)


def ring_by_hand(n: int, cached: bool) -> int:
    """Return how many chunks a ring's instances read from memory and write to it, step by step."""
    chunks = 0
    for step in range(2 * (n - 1)):
        neighbours = 0 if cached and step else 1
        chunks += n * (neighbours + 1 + 1)  # the neighbour's, the own line that is read before it is written, the write
    return chunks


def test_larger_batches_that_lose_nothing_are_not_what_the_paper_says() -> None:
    figure = module("parax_43")
    first, same, lost, many = [[98.0, 0.1]], [[97.5, 0.1]], [[96.0, 0.2]], [[80.0, 0.9]]
    for rows, expected in (
        ([first, same, many], [papers.REPRODUCED, papers.NO_EVIDENCE]),
        ([first, lost, many], [papers.NOT_REPRODUCED, papers.NO_EVIDENCE]),
        ([first, same, first], [papers.REPRODUCED, papers.NOT_REPRODUCED]),
    ):
        found = list(verdicts(figure, {figure.SAME: rows, figure.SCALED: rows}, {}).values())
        assert found == [papers.REPRODUCED, *expected, expected[-1]]


def test_what_diverges_is_counted_apart_and_in_no_mean() -> None:
    figure = module("parax_43")
    first, gone = [[98.0, 0.1], [96.0, 0.3]], [list(figure.CHANCE)] * 2
    some = [first[0], gone[0]]
    assert figure.means([first, some], 0) == [97.0, 98.0] and isnan(figure.means([gone], 0)[0])
    assert [figure.in_short(row) for row in (first, some, gone)] == [
        "97.0",
        "98.0 (1 of 2 diverged)",
        "2 of 2 diverged",
    ]
    found = verdicts(figure, {figure.SAME: [], figure.SCALED: [first, some, gone]}, {})
    assert list(found.values()) == [papers.NOT_REPRODUCED, papers.REPRODUCED, papers.NOT_MEASURABLE, papers.NO_EVIDENCE]
    measured = {figure.SAME: [first, some, some], figure.SCALED: [first, some, gone]}
    assert figure.FIGURE.words(measured, {})[0].endswith("2 of 2 diverged")
    assert list(verdicts(figure, {figure.SCALED: [first, gone, gone]}, {}).values())[1] == papers.NOT_MEASURABLE


def test_section_4_3_in_short(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    figure = module("parax_43")
    for name, value in {"COUNTS": (1, 4), "SEEDS": (1,), "EPOCHS": 0.1, "BATCH": 16}.items():
        monkeypatch.setattr(figure, name, value)
    found = figure.all_trained(str(tmp_path))
    (one,), (four,) = found[figure.SAME]
    assert one == found[figure.SCALED][0][0] != four
    assert 0 < four[0] <= 100 and four[1] > 0


def test_instances_on_two_cores_gain_by_the_model_and_less_is_refused() -> None:
    figure = module("parax_11")
    assert figure.here("lenet", True) > 1
    model = {"bandwidth": [61.3, 88.6], "inference": 1.45, "cores": [0.0, 94.8], "convolution": {"bandwidth": 0.5}}
    for gain, verdict in ((1.1, papers.REPRODUCED), (0.9, papers.NOT_REPRODUCED)):
        measured = {"core bandwidth": 20e9, "gains": {"MobileNet-v1": {"training": gain, "inference": gain}}}
        found = [check.verdict for check in figure.FIGURE.check(measured, model) if "cores here" in check.what]
        assert found == [verdict] * 2


def test_the_counted_bytes_of_parameter_server_and_ring_are_the_closed_forms() -> None:
    figure, gathers = module("parax_15"), module("gathers")
    for n in (2, 3, 4):
        places = gathers.place(str(n), gathers.read_topology(), oversubscribe=True)
        for name, make in gathers.ways(n, 5000, [one.domain for one in places]):
            moved = gathers.timed(make(), places, 1)[1] / 5000 if name in figure.COLOURS else None
            if name == figure.GS:  # saves a pass where several gradients come at once
                assert moved <= figure.passes(name, n)
            elif moved:
                assert moved == pytest.approx(figure.passes(name, n), rel=1e-3)


def test_the_gradient_server_updates_the_weights_of_each_domain() -> None:
    """Algorithm 1: the first gradient and n - 1 additions, then W_i += G on both NUMA nodes."""
    figure = module("parax_15")
    assert figure.passes(figure.GS, 54, domains=2) == 53 * 3 + 2 * 3
    assert figure.passes(figure.PS, 54, domains=2) == figure.passes(figure.PS, 54) == 2 + 53 * 3 + 3 + 54 * 2
    update = 4 * figure.ELEMENTS * (53 * 3 + 2 * 3) / 281.6e9  # by all cores, at the memory's rate
    assert figure.FIGURE.rate(figure.GS, 54, 1e9) == pytest.approx(1728 / (1728 / (196 * 1.73) + update), rel=1e-9)
    lines = list(figure.FIGURE.table({}, {}))
    assert lines[2].endswith("| 1.47 | 1.56 | 1.61 | 1.63 | 1.65 |")  # 22 / 15, 42 / 27, 92 / 57, 137 / 84, 272 / 165


def test_an_update_through_slow_sockets_takes_what_its_bytes_take() -> None:
    figure = module("parax_15")
    nbytes, stream = 4 * figure.ELEMENTS, 1e6
    for way, n, times in ((figure.PS, 4, 8), (figure.RING, 4, 6), (figure.PS, 54, 108)):
        images = n * (32 if n == 54 else 64)
        rate = figure.FIGURE.rate(way, n, stream)
        assert rate == pytest.approx(images / (times * nbytes / (2 * stream)), rel=0.01)
    assert figure.FIGURE.rate(figure.GS, 4, stream) == figure.FIGURE.rate(figure.GS, 4, 2 * stream) > 1


def test_an_lstm_s_products_and_element_wise_operations_are_the_closed_form() -> None:
    figure = module("parax_6")
    products, others = figure.lstm(1e9, 1e30)
    assert products == pytest.approx(35 * 64 * 2 * 4 * 650 * 1300 / 1e9) and others == pytest.approx(0, abs=1e-9)
    assert figure.lstm(1e9, 1e9)[1] == pytest.approx(35 * 4 * 64 * 650 * 42 / 1e9)


def test_inference_is_no_evidence_for_more_instances_and_counts_where_it_is_missed() -> None:
    figure = module("parax_13")
    rising, falling = [1.0, 1.1, 1.2, 1.3], [1.0, 1.1, 1.2, 1.15]
    cores = {
        "ParaX": dict.fromkeys(figure.SCALED, [1, 14, 28, 56]),
        "MXNet": dict.fromkeys(figure.SCALED, [1, 12, 20, 40]),
    }
    instances = {"training": {"MobileNet-v1": rising}, "inference": {"MobileNet-v1": rising, "Word-LM": falling}}
    found = verdicts(
        figure, {}, {"instances": instances, "cores": dict.fromkeys(figure.PHASES, cores), "words": [2.76, 2.49]}
    )
    for what, verdict in found.items():
        missing = papers.NOT_REPRODUCED if "Word-LM" in what else papers.NO_EVIDENCE
        assert verdict == (missing if "inference" in what else papers.REPRODUCED), what


def test_an_instance_on_one_core_has_the_rate_of_its_layers() -> None:
    figure = module("parax_13")
    machine = replace(figure.machine(2), jitter=0.0, cores=1, domains=1)
    seconds = sum(cost.seconds for cost in on_machine(figure.passes("MobileNet-v1", True).costs, machine))
    made = figure.predict(figure.passes("MobileNet-v1", True), machine, figure.Division(1, 64, divided=True), 1)
    assert made.rate == pytest.approx(1 / seconds, rel=0.02)


def test_the_parameter_server_s_and_the_ring_s_measured_passes_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_15")
    monkeypatch.setattr(figure, "ELEMENTS", 5040)  # a multiple of each count
    monkeypatch.setattr(figure, "TURNS", 1)
    monkeypatch.setattr(figure, "STREAMS", 1)
    short = figure.FIGURE.measure()
    assert short["cores"] >= 1
    for way in (figure.PS, figure.RING):
        by_formula = [figure.passes(way, n) for n in figure.COUNTS]
        assert short["passes"][way] == pytest.approx(by_formula, rel=1e-3)
    checks = list(figure.FIGURE.check(short, figure.FIGURE.model(short)))
    assert len(checks) == len(figure.COUNTS) * 4 + 4 and all(check.found for check in checks)


def test_a_server_that_rises_with_a_half_batch_is_not_the_papers() -> None:
    figure = module("parax_15")
    for last, verdict in ((0.99, papers.REPRODUCED), (1.2, papers.NOT_REPRODUCED)):
        rates = dict.fromkeys(figure.COLOURS, [1.0, 1.1, 1.2, 1.3, 1.4, 1.4 * last])
        found = verdicts(figure, {}, {"rates": rates})
        assert found["throughput, server: 54 instances (batch 32) over 27"] == verdict
    falling = verdicts(figure, {}, {"rates": dict.fromkeys(figure.COLOURS, [1.0, 1.1, 1.0, 1.3, 1.4, 1.4])})
    assert [what for what, v in falling.items() if v == papers.NOT_REPRODUCED and "least step" in what]


def test_convolutions_take_the_longer_of_operations_and_bytes_and_parax_18_has_the_fitted_rates() -> None:
    figure = module("parax_11")
    seconds, used = figure.convolving(1)
    socket = figure.machine(1)
    costs = [cost for cost in on_machine(figure.passes(True).costs, socket) if cost.computes]
    images, moved = figure.BATCH * figure.CORES, sum(cost.moved for cost in costs)
    assert seconds == pytest.approx(images * sum(cost.flops for cost in costs) / 130e9, rel=0.02)
    bytes_moved = images * moved + sum(cost.parameters for cost in costs)
    assert used == pytest.approx(bytes_moved / (seconds * socket.bandwidth))
    fitted = {one.name for one in module("parax_18").FIGURE.inputs if one.origin == "fitted"}
    assert fitted == {"core rate", "core bandwidth"}
