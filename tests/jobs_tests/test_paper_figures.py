"""The papers' figures: models against closed forms and counts, and checks that fail when an input is wrong."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import scaffe
from scaffe import papers
from scaffe.models import get

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = [str(ROOT / "jobs/papers"), str(ROOT / "jobs/bench")]
MODULES = sorted(path.stem for path in (ROOT / "jobs/papers").glob("*.py"))
pytestmark = pytest.mark.mpi_skip


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The folders of the figures and of the benchmarks on sys.path, and their modules gone afterwards."""
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*FOLDERS, *sys.path])
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(tuple(FOLDERS)):
            del sys.modules[name]


def module(name: str) -> ModuleType:
    return importlib.import_module(name)


def verdicts(name: str, measured: dict | None = None, modelled: dict | None = None) -> dict[str, str]:
    """Return the verdict of each check of a figure, by what it checks; `modelled` where its model takes long."""
    figure = module(name).FIGURE
    found = measured or {}
    return {check.what: check.verdict for check in figure.check(found, modelled or figure.model(found))}


def kept(name: str) -> dict:
    """Return what the package's result of a figure keeps of its measurement."""
    return json.loads((papers.FOLDER / f"{name}.json").read_text())["kept"]["measured"]


def test_each_result_is_what_its_figure_makes_of_the_kept_measurement() -> None:
    figures = module("run").figures()
    assert {one["id"] for one in papers.results()} == set(figures)
    for name in ("swcaffe-10", "numa-caffe-9", "singlecaffe-9", "singlecaffe-6", "s-caffe-9"):  # quick ones
        written = json.loads((papers.FOLDER / f"{name}.json").read_text())
        assert json.loads(json.dumps(module("figure").result(figures[name], written["kept"]))) == written


def test_each_input_says_where_it_comes_from() -> None:
    origins = module("figure").ORIGINS
    for figure in module("run").figures().values():
        assert all(one.origin in origins and one.where for one in figure.inputs), figure.id


def test_a_check_is_as_strict_as_its_bounds() -> None:
    check = module("figure").Check
    assert [check("", found, 1, 2).verdict for found in (0.9, 1, 2, 2.1, float("nan"), float("inf"), None)] == [
        papers.NOT_REPRODUCED, papers.REPRODUCED, papers.REPRODUCED, papers.NOT_REPRODUCED, papers.NOT_REPRODUCED,
        papers.NOT_REPRODUCED, papers.NOT_MEASURABLE,
    ]  # fmt: skip
    assert check("", 2.5, 1, 2).by == 0.5 and check("", 0.5, 1, 2).by == 0.5


def test_a_check_on_what_was_fitted_is_no_evidence_for_and_counts_where_it_is_missed() -> None:
    base = module("figure")
    held, missed = (base.Check("", found, 1, 2, fitted=True).verdict for found in (1.5, 3.0))
    assert (held, missed) == (papers.NO_EVIDENCE, papers.NOT_REPRODUCED)
    assert base.worst([held, papers.REPRODUCED]) == papers.REPRODUCED
    assert base.worst([held]) == papers.NO_EVIDENCE
    assert base.worst([held, missed]) == base.worst([held, papers.NOT_REPRODUCED]) == papers.NOT_REPRODUCED


def test_what_the_papers_inputs_were_fitted_on_is_no_evidence() -> None:
    fitted = {
        "singlecaffe-9": {"CIFAR-10: nodes at which", "MNIST: least ratio"},
        "s-caffe-8": {"160 over 32 GPUs (computing"},
        "parax-11": {"bandwidth used, one instance"},
    }
    for name, wanted in fitted.items():
        (one,) = (one for one in papers.results() if one["id"] == name)
        found = {check["what"] for check in one["checks"] if check["verdict"] == papers.NO_EVIDENCE}
        assert len(found) == len(wanted) and all(any(what.startswith(text) for what in found) for text in wanted), name


def gradient(batch: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Return LeNet's gradient on a batch, by a net of its own."""
    net = scaffe.Net(get("lenet").train_val(batch=len(batch), data="input"), phase=scaffe.TRAIN)
    random = np.random.default_rng(1)
    for blobs in net.params.values():
        for blob in blobs:
            blob.data[...] = random.normal(0, 0.05, blob.data.shape)
    net.blobs["data"].data[...], net.blobs["label"].data[...] = batch, labels
    net.forward()
    net.backward()
    found = np.concatenate([np.ravel(blob.diff).copy() for blobs in net.params.values() for blob in blobs])
    net.close()
    return found


def test_the_gate_accepts_the_mean_of_gradients_and_refuses_their_sum() -> None:
    gate = module("numa_caffe_8")
    random = np.random.default_rng(2)
    images, labels = random.normal(size=(8, 1, 28, 28)), random.integers(0, 10, 8)
    one = gradient(images, labels)
    parts = [gradient(images[k : k + 2], labels[k : k + 2]) for k in range(0, 8, 2)]
    same = {"losses": [1.0] * 40, "accuracy": 90.0}

    def gradients_agree(found: np.ndarray) -> bool:
        measured = {"ways": {gate.ONE: same, "4 ranks": same}, "differences": {"4 ranks": gate.difference(found, one)}}
        checks = [check.result() for check in gate.FIGURE.check(measured, {})]
        assert len(checks) == 3
        return not module("run").differ({"checks": checks})

    assert gradients_agree(np.mean(parts, axis=0))
    assert not gradients_agree(np.sum(parts, axis=0))
    assert module("run").differ({"checks": []})


def test_the_gate_refuses_another_loss_curve_and_another_accuracy() -> None:
    gate = module("numa_caffe_8")
    one = {"losses": [1.0] * 40, "accuracy": 90.0}
    for other in ({"losses": [1.0] * 20 + [1.02] * 20}, {"accuracy": 88.7}):
        measured = {"ways": {gate.ONE: one, "4 ranks": one | other}, "differences": {"4 ranks": 0.0}}
        assert [check.verdict for check in gate.FIGURE.check(measured, {})].count(papers.NOT_REPRODUCED) == 1


def test_renumbering_sends_a_quarter_and_a_256th_across_and_a_wrong_rate_is_refused() -> None:
    figure = module("swcaffe_7")
    assert [old / new for old, new in (figure.crossed(8, 4), figure.crossed(1024, 256))] == [4, 256]
    assert figure.ratio(8, 4, 4) == pytest.approx(19 / 10)
    assert figure.ratio(8, 4, 1) == 1
    machine = replace(figure.TAIHULIGHT, nodes_per_supernode=8, alpha=0, gamma=0)
    old, new = figure.predicted(machine, 32, 1 << 20)
    assert old / new == pytest.approx(figure.ratio(32, 8, 4), rel=0.01)
    assert figure.FIGURE.value("old / new, 1,024 nodes") == pytest.approx(figure.ratio(1024, 256, 4), rel=1e-4)
    calls = [{"old": [1.9], "new": [1.0]}] * len(figure.SIZES)
    equal = [{"old": [1.0], "new": [1.0]}] * len(figure.SIZES)
    right, wrong = ({"a quarter": quarter, "full": equal} for quarter in (calls, equal))
    model = {"crossing": {"8 4": [4, 1], "1024 256": [256, 1]}, "1024": [figure.ratio(1024, 256, 4), 1.0]}
    assert set(verdicts("swcaffe_7", right, model).values()) == {papers.REPRODUCED}
    assert verdicts("swcaffe_7", wrong, model)["time old / new, 64 MB, uplink of a quarter"] == papers.NOT_REPRODUCED


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


def test_an_update_through_slow_sockets_takes_what_its_bytes_take() -> None:
    figure = module("parax_15")
    nbytes, stream = 4 * figure.ELEMENTS, 1e6
    for way, n, times in ((figure.PS, 4, 8), (figure.RING, 4, 6), (figure.PS, 54, 108)):
        images = n * (32 if n == 54 else 64)
        rate = figure.FIGURE.rate(way, n, stream)
        assert rate == pytest.approx(images / (times * nbytes / (2 * stream)), rel=0.01)
    assert figure.FIGURE.rate(figure.GS, 4, stream) == figure.FIGURE.rate(figure.GS, 4, 2 * stream) > 1


def test_one_fitted_exchange_gives_the_other_speedups_and_nominal_rates_do_not() -> None:
    figure = module("swcaffe_10")
    assert figure.speedup(1024, 2.0, figure.exchange_of(1024, 2.0, 715.45)) == pytest.approx(715.45)
    found = verdicts("swcaffe_10")
    missed = [what for what, verdict in found.items() if verdict != papers.REPRODUCED]
    assert missed == ["share of communication of ResNet-50 32, %, from the paper's speedup"] and len(found) == 7
    nominal = figure.FIGURE.nominal("AlexNet's parameters")
    inputs = type(figure.FIGURE).inputs
    figure.FIGURE.inputs = [replace(one, value=nominal) if one.name == "AlexNet's exchange" else one for one in inputs]
    assert list(verdicts("swcaffe_10").values())[:2] == [papers.NOT_REPRODUCED] * 2


def test_a_simulated_chain_gains_what_equations_1_and_2_say() -> None:
    figure = module("s_caffe_11")
    assert figure.gain(8, 16) == pytest.approx(3 * 16 / 22)
    assert figure.simulated_gain(8 << 20) == pytest.approx(figure.gain(8, 16), rel=0.01)


def test_the_rate_is_that_at_which_communication_takes_the_wanted_share() -> None:
    figure = module("s_caffe_13")
    talking, update, operations = 300.0, 20.0, 1e12
    fastest = {figure.ALONE: update, figure.SC_B: update + talking}
    fast = {figure.ALONE: update + 1e3 * operations / figure.FAST}
    rate = figure.computing_rate(fastest, fast, 0.36)
    computing = update + 1e3 * operations / rate
    assert talking / (talking + computing) == pytest.approx(0.36)


def test_only_cc_8_is_out_of_the_order_of_table_2() -> None:
    figure = module("s_caffe_13")
    for ranks, elements in ((16, figure.CAFFENET), (64, 13_378_280), (160, figure.CAFFENET)):
        seconds = {d: figure.scaffe_row(a, figure.KESCH, ranks, elements).seconds for d, a in figure.ALGORITHMS.items()}
        assert sorted(seconds, key=lambda design: -seconds[design]) == ["SC-B", "CB-4", "CB-8", "CC-8"]


def test_computing_was_fitted_on_160_over_32_and_nothing_hides_without_overlap() -> None:
    figure = module("s_caffe_8")
    (one,) = (one for one in papers.results() if one["id"] == "s-caffe-8")
    assert one["checks"][0]["found"] == pytest.approx(2.5, rel=0.01)
    talking = figure.seconds(8, 1e-9, "no overlap")
    assert figure.seconds(8, 3.2, "no overlap") == pytest.approx(0.4 + talking, rel=1e-3)
    assert 0.4 < figure.seconds(8, 3.2) < 0.4 + talking


def test_the_exchange_of_made_up_links_is_found_again() -> None:
    figure = module("singlecaffe_9")
    made = {net: [figure.exchange(n, each, 3e-4, 8e-9) for n in figure.COUNTS] for net, each in figure.NETS.items()}
    assert figure.fit(made) == pytest.approx((3e-4, 8e-9))
    wrong = {net: [5 * t for t in seconds] if net == "MNIST" else seconds for net, seconds in made.items()}
    assert papers.NOT_REPRODUCED in verdicts("singlecaffe_9", wrong).values()


def test_remote_bytes_fall_by_what_a_count_by_hand_gives() -> None:
    figure = module("numa_caffe_9")
    load = figure.Load(10, 0, 100, 20, 8, 50)
    assert figure.fall(load, 4) == pytest.approx(100 * (1 - (300 + 0.75 * 80) / (0.75 * 1350)))
    box = figure.Box(4, 1e9, 1e9, 1e9, 1e9)
    one, four = (figure.FIGURE.seconds("NUMA", replace(load, weights=0), box, n) for n in (1, 4))
    assert one == pytest.approx(4 * four)


def test_lenets_operations_and_bytes_are_those_counted_by_hand() -> None:
    shapes = module("shapes")
    operations = 2 * (25 * 20 * 24 * 24 + 500 * 50 * 8 * 8 + 800 * 500 + 500 * 10)
    assert shapes.roofline("lenet", 1e9, float("inf"), training=False) == pytest.approx(operations / 1e9)
    assert shapes.parameters("lenet") == 4 * 431_080
    tops = 784 + 1 + 20 * 24 * 24 + 20 * 12 * 12 + 50 * 8 * 8 + 50 * 4 * 4 + 500 + 10 + 1
    assert shapes.activations("lenet") == 4 * tops
    memory = module("parax_18")
    assert memory.FIGURE.value("MobileNet-v1: blobs") == shapes.activations("mobilenet")
    assert memory.footprint("lenet", 3, 10) == 40 * tops + 5 * 4 * 431_080


def test_rates_above_the_roofline_and_another_order_of_nets_are_refused() -> None:
    figure = module("swcaffe_8")
    assert figure.GROUPS * figure.BATCH / sum(map(sum, figure.TABLE_2)) == pytest.approx(7.47, abs=0.01)
    twice = {name: {net: 2 * rate for net, rate in rates.items()} for name, rates in figure.TABLE_3.items()}
    model = {"rates": twice, "convolutions": 7.47}
    assert set(verdicts("swcaffe_8", {}, model).values()) == {papers.REPRODUCED}
    half = twice | {"CPU": {net: rate / 4 for net, rate in twice["CPU"].items()}}
    assert list(verdicts("swcaffe_8", {}, model | {"rates": half}).values()).count(papers.NOT_REPRODUCED) == 1
    swapped = twice | {"CPU": twice["CPU"] | {"AlexNet": 2.2}}
    assert list(verdicts("swcaffe_8", {}, model | {"rates": swapped}).values()).count(papers.NOT_REPRODUCED) == 2


def test_threads_gain_what_the_parts_of_a_batch_say() -> None:
    figure = module("singlecaffe_6")
    linear = {net: [1e-2 * n for n in figure.SIZES] for net in figure.NETS}
    constant = {net: [1.0] * len(figure.SIZES) for net in figure.NETS}
    gains = figure.FIGURE.model(linear)["gains"]["CIFAR-10"]["100"]
    assert gains[0] == 1 and gains[9] == pytest.approx(10, rel=0.01) and gains[23] == pytest.approx(20, rel=0.01)
    assert figure.FIGURE.model(constant)["gains"]["MNIST"]["64"][23] == pytest.approx(1, rel=0.01)
    assert verdicts("singlecaffe_6", constant)["CIFAR-10: best gain"] == papers.NOT_REPRODUCED


def test_an_lstm_s_products_and_element_wise_operations_are_the_closed_form() -> None:
    figure = module("parax_6")
    products, others = figure.lstm(1e9, 1e30)
    assert products == pytest.approx(35 * 64 * 2 * 4 * 650 * 1300 / 1e9) and others == pytest.approx(0, abs=1e-9)
    assert figure.lstm(1e9, 1e9)[1] == pytest.approx(35 * 4 * 64 * 650 * 42 / 1e9)


def test_layers_without_bytes_gain_nothing_from_memory_at_home(monkeypatch: pytest.MonkeyPatch) -> None:
    figure, shapes = module("numa_caffe_12"), module("shapes")
    work = next(iter(shapes.works("lenet").values()))
    made = {
        "computes": replace(work, flops=(1e9, 1e9), moved=(0, 0)),
        "moves": replace(work, flops=(0, 0), moved=(8e6, 0)),
    }
    monkeypatch.setattr(shapes, "works", lambda name: made)
    intel, numa = (figure.seconds(system, "lenet") for system in ("Intel", "NUMA"))
    assert intel["computes"] == numa["computes"]
    assert numa["moves"] == pytest.approx(8e6 / (4 * figure.BOX.memory))
    assert intel["moves"] == pytest.approx(0.84 * 8e6 * 0.75 / figure.BOX.link)


def test_without_an_exchange_gpus_scale_and_a_slow_one_is_refused() -> None:
    figure = module("s_caffe_9")
    one, many = (figure.FIGURE.seconds(n) for n in (1, 64))
    assert many - figure.talking(figure.KESCH, 64, figure.QUICK) == pytest.approx(one / 64)
    assert figure.FIGURE.samples(1, 79.25) == pytest.approx(79.25)
    model = {"speedups": [1.0, 32.0], "Caffe on 16": 1.0, "samples": {"copying as a K40m": [1395.0]}}
    assert set(verdicts("s_caffe_9", {}, model).values()) == {papers.REPRODUCED}
    assert papers.NOT_REPRODUCED in verdicts("s_caffe_9", {}, model | {"Caffe on 16": 1.1}).values()


def test_processes_have_weights_and_spread_pages_the_links_of_all_nodes() -> None:
    figure = module("numa_caffe_3")
    own = figure.FIGURE.memory(2) - figure.FIGURE.memory(1)
    assert own == pytest.approx(3 * 4 * 60_965_224 + 1.4e6)
    box = replace(figure.BOXES["SB"], memory=1e9, link=1e8)
    assert figure._spread(8e8, box) == pytest.approx(2e8 * 0.75 / 1e8)


def test_an_instance_on_one_core_has_the_rate_of_its_layers() -> None:
    figure = module("parax_13")
    machine = replace(figure.machine(2), jitter=0.0, cores=1, domains=1)
    seconds = sum(
        cost.seconds
        for cost in importlib.import_module("scaffe.parallel.instances.simulation.layers").on_machine(
            figure.passes("MobileNet-v1", True).costs, machine
        )
    )
    made = figure.predict(figure.passes("MobileNet-v1", True), machine, figure.Division(1, 64, divided=True), 1)
    assert made.rate == pytest.approx(1 / seconds, rel=0.02)


def test_a_chain_that_gains_nothing_is_not_reproduced() -> None:
    figure = module("s_caffe_11")
    seconds = {"binomial": 48.0, "chain": 22.0, "cb-4": 30.0, "auto": 22.0}
    short = {"binomial": 1.0, "chain": 2.0, "cb-4": 1.5, "auto": 1.0}
    measured = {name: [[short[name]]] + [[seconds[name]]] * (len(figure.SIZES) - 1) for name in seconds}
    model = {"gain": figure.gain(8, 16)}
    assert set(verdicts("s_caffe_11", measured, model).values()) == {papers.REPRODUCED}
    slow = verdicts("s_caffe_11", measured | {"chain": measured["binomial"]}, model)
    assert slow["binomial / chain, 8 ranks, 16 chunks, 32 MB, measured"] == papers.NOT_REPRODUCED
    worse = verdicts("s_caffe_11", measured | {"auto": measured["cb-4"]}, model)
    assert worse["scaffe's choice over the best fixed one, largest over the sizes"] == papers.NOT_REPRODUCED


def test_workflows_that_hide_nothing_are_not_reproduced() -> None:
    figure = module("s_caffe_13")
    ms = {figure.ALONE: 64.0, figure.TALKING: 36.0, figure.SC_B: 100.0, figure.SC_OB: 90.0, figure.SC_OBR: 85.0}
    gains = [f"gain of {name} over SC-B, %" for name in ("SC-OB", "SC-OBR")]
    for other, wanted in ((ms, papers.REPRODUCED), (ms | dict.fromkeys((figure.SC_OB, figure.SC_OBR), 100.0), None)):
        found = verdicts("s_caffe_13", {"rate": 1.0, "ms": other})
        assert {found[gain] for gain in gains} == {wanted or papers.NOT_REPRODUCED}


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Run the job with made-up figures, the gate first; return its exit code and the results' measurements by ID."""
    run, base = module("run"), module("figure")

    class MadeUp(base.Figure):
        title = source = paper = ""

        def __init__(self, name: str, rank: int, found: object):
            self.id, self.rank, self.found = name, rank, found

        def measure(self) -> dict:
            if isinstance(self.found, Exception):
                raise self.found
            return {"value": self.found}

        def check(self, measured: dict, modelled: dict) -> list:
            return [base.Check(f"{run.GATE}, {self.id}", measured["value"], high=1)] if measured else []

        def words(self, measured: dict, modelled: dict) -> tuple[str, str]:
            return "", ""

        def draw(self, figure: object, measured: dict, modelled: dict) -> None: ...

    def start(*words: str, **found: object) -> tuple[int, dict]:
        made = {name: MadeUp(name, rank, value) for rank, (name, value) in enumerate(found.items())}
        monkeypatch.setattr(run, "figures", lambda: made)
        monkeypatch.setattr(run, "FOLDER", tmp_path)
        monkeypatch.setattr(run, "PICTURES", tmp_path)
        monkeypatch.setattr(run, "conditions", lambda: {"date": "", "load": 1.5})
        monkeypatch.setattr(run.pages, "write", lambda *given: None)
        monkeypatch.setattr(sys, "argv", ["run.py", *words])
        code = run.main()
        kept = {path.stem: json.loads(path.read_text())["kept"] for path in tmp_path.glob("*.json")}
        return code, {name: one.get("measured", one.get("why")) for name, one in kept.items()}

    return start


def test_nothing_is_measured_while_the_gate_s_gradients_differ(job) -> None:
    assert job(gate=2.0, a=0.5) == (1, {"gate": {"value": 2.0}})
    assert job(gate=0.0, a=0.5) == (0, {"gate": {"value": 0.0}, "a": {"value": 0.5}})


def test_the_job_names_the_figures_that_it_knows(job, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        job("s-caffe-99", gate=0.0, **{"s-caffe-11": 0.5, "s-caffe-9": 0.5, "parax-6": 0.5})
    assert ended.value.code == 2
    message = "papers.sh: unknown figure 's-caffe-99'; known: gate parax-6 s-caffe-9 s-caffe-11\n"
    assert capsys.readouterr() == ("", message)


def test_a_figure_that_fails_keeps_its_result_and_the_next_one_runs(job) -> None:
    job(gate=0.0, a=0.5, b=0.5)
    after = {"gate": {"value": 0.0}, "a": {"value": 0.5}, "b": {"value": 0.7}}
    assert job(gate=0.0, a=RuntimeError("no ranks"), b=0.7) == (1, after)
    assert job("--keep", gate=9.0, a=9.0, b=9.0) == (0, after)
    assert job("b", gate=9.0, a=9.0, b=0.8) == (0, after | {"b": {"value": 0.8}})
    assert job("b", gate=9.0, a=9.0, b=module("figure").NotMeasurable("no root"))[1]["b"] == "no root"


def test_a_measurement_has_its_conditions(job, tmp_path: Path) -> None:
    job(gate=0.0)
    assert json.loads((tmp_path / "gate.json").read_text())["kept"]["load"] == 1.5
    found = module("conditions").conditions()
    assert found["load"] >= 0 and found["sgemm"] > 0 and found["machine"]
    assert time.strptime(found["date"], "%Y-%m-%d %H:%M") <= time.localtime()


@pytest.mark.parametrize("name", MODULES)
def test_no_module_hides_another(name: str) -> None:
    assert name not in sys.stdlib_module_names
    assert name not in {path.stem for path in (ROOT / "jobs/bench").glob("*.py")}


def test_the_gate_in_short_one_solver_and_eight_instances(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    gate = module("numa_caffe_8")
    for name, value in {"ITERATIONS": 2, "IMAGES": 64, "TEST_IMAGES": 32}.items():
        monkeypatch.setattr(gate, name, value)
    gate.write_digits(tmp_path)
    found = []
    for instances in (1, 8):
        gate.train(tmp_path, instances, 0.0)
        found.append((np.load(tmp_path / "gradients.npy"), json.loads((tmp_path / "losses.json").read_text())))
    (one, losses), (eight, others) = found
    assert 0 < gate.difference(eight, one) <= gate.LARGEST
    assert gate.difference(8 * eight, one) > 1
    assert others == pytest.approx(losses, rel=1e-4)


def test_the_parameter_server_s_and_the_ring_s_measured_passes_in_short(monkeypatch: pytest.MonkeyPatch) -> None:
    figure = module("parax_15")
    monkeypatch.setattr(figure, "ELEMENTS", 5040)  # a multiple of each count
    monkeypatch.setattr(figure, "TURNS", 1)
    monkeypatch.setattr(figure, "STREAMS", 1)
    short = figure.FIGURE.measure()
    for way in (figure.PS, figure.RING):
        assert short["passes"][way] == pytest.approx(kept("parax-15")["passes"][way], rel=1e-3)
    checks = list(figure.FIGURE.check(short, figure.FIGURE.model(short)))
    assert len(checks) == len(figure.COUNTS) * 4 + 2 and all(check.found for check in checks)
