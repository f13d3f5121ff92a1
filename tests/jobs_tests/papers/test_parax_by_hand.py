"""ParaX's figures 6, 18 and section 4.3: models and trainings on shapes that a hand can count."""

from __future__ import annotations

from types import SimpleNamespace
from typing import ClassVar

import pytest
from paper_figures import module

from scaffe.tools.work import LayerWork

pytestmark = [pytest.mark.mpi_skip, pytest.mark.usefixtures("figures_path")]


def test_a_layer_takes_its_start_and_the_longer_of_a_batch_s_operations_and_bytes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    figure = module("parax_6")
    layers = {"product": LayerWork((10.0, 0.0), (6.0, 0.0)), "sum": LayerWork((0.0, 0.0), (5.0, 0.0))}
    trained = {"product": LayerWork((99.0, 99.0), (99.0, 99.0))}
    monkeypatch.setattr(figure.shapes, "works", lambda name, training=True: trained if training else layers)
    assert figure.layered("made up", flops=2.0, bandwidth=3.0, start=1.0) == pytest.approx((1 + 64 * 5, 1 + 64 * 5 / 3))
    assert figure.layered("made up", flops=100.0, bandwidth=3.0) == pytest.approx((64 * 2, 64 * 5 / 3))


def test_an_lstm_s_step_takes_the_longer_of_its_products_and_their_bytes() -> None:
    """Weights of 8 widths squared; 2 widths read and 8 written of each of 64 rows."""
    figure = module("parax_6")
    moved, products = 4 * (8 * 650**2 + 64 * 10 * 650), 2 * 64 * 8 * 650**2
    assert figure.lstm(1e30, 1e9)[0] == pytest.approx(35 * moved / 1e9)
    assert figure.lstm(1e11, 1e9)[0] == pytest.approx(35 * max(moved / 1e9, products / 1e11))


def test_a_socket_has_three_quarters_of_its_peak_in_products() -> None:
    figure = module("parax_6")
    products = 2 * 64 * 8 * 650**2 / (0.75 * 28 * 2.7e9 * 64)  # longer than their bytes
    others = 4 * 64 * 650 * 42 / 140.8e9
    assert figure.FIGURE.model({})["without starts"]["CPU"] == pytest.approx(products / others)


@pytest.mark.parametrize(("inside", "wanted"), [(0.0, 3.0), (2.0, 2.0)])
def test_products_inside_a_layer_are_taken_from_its_time(
    monkeypatch: pytest.MonkeyPatch, inside: float, wanted: float
) -> None:
    figure = module("parax_6")
    timed = object.__new__(figure.Timed)
    timed.net = SimpleNamespace(layers=["lstm", "sum"], forward_layer=None, engine=SimpleNamespace(wait=None))
    timed.computing, timed.moving, timed.last = [0], [1] * (not inside), 1

    def time_layers(which: object, forward: object, seconds: object, wait: object, clock: object) -> None:
        seconds += (3.0, 1.0)
        timed.inside = inside

    monkeypatch.setattr(figure, "LEAST", 0.0)
    monkeypatch.setattr(figure, "time_layers", time_layers)
    assert timed.ratio() == wanted


def test_memory_is_blobs_of_each_image_gradients_of_each_instance_and_weights_of_each_domain(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    memory = module("parax_18")
    a, p = 5e6, 7e7
    monkeypatch.setattr(memory.shapes, "activations", lambda name: a)
    monkeypatch.setattr(memory.shapes, "parameters", lambda name: p)
    monkeypatch.setattr(memory, "over_batch", lambda net: {})
    found = memory.FIGURE.model({})
    assert found["GB"]["ResNet-50"] == pytest.approx([1e-9 * (64 * n * a + (n + 2) * p) for n in (1, 4, 14, 28, 56)])
    assert found["1792"] == pytest.approx(1e-9 * (1792 * a + 58 * p))
    assert found["fit"]["ResNet-50"] == pytest.approx((16e9 - 2 * p) / a)  # a P100's weights and gradients


def test_instances_of_64_images_and_56_instances_of_some_divide_all_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = module("parax_18")
    monkeypatch.setattr(memory, "rate", lambda *given: given)
    found = memory.over_batch("a net")
    assert found["training"] == [("a net", False, 56, x, 64) for x in (56, 4, 1)]
    assert found["inference"] == [("a net", True, 56, 1, images) for images in (56, 896, 3584)]


class Recorded:
    """A solver and a net that record how they are used."""

    made: ClassVar[list] = []

    def __init__(self, param: object, phase: object = None, instances: object = None):
        self.param, self.net, self.steps, self.passes, self.weights = param, self, 0, 0, None
        self.made.append(self)

    def step(self, count: int) -> None:
        self.steps += count

    def share_with(self, other: object) -> None:
        self.weights = other

    def forward(self) -> dict[str, float]:
        self.passes += 1
        return {"accuracy": 0.1 * self.passes, "loss": 1.0}

    def close(self) -> None: ...


@pytest.mark.parametrize(("n", "iterations"), [(1, 180), (4, 45), (16, 11)])
def test_more_instances_take_as_many_epochs_in_fewer_iterations(
    monkeypatch: pytest.MonkeyPatch, n: int, iterations: int
) -> None:
    """8 epochs of 1,437 digits; 360 others in 6 batches tell the accuracy of the trained weights."""
    figure = module("parax_43")
    Recorded.made.clear()
    monkeypatch.setattr(figure.scaffe, "Solver", Recorded)
    monkeypatch.setattr(figure.scaffe, "Net", Recorded)
    monkeypatch.setattr(figure, "Instances", lambda count, oversubscribe: count)
    rate = figure.RULES[figure.SCALED](n)
    found = figure.trained(("here", "there"), n, rate, 1)
    solver, test = Recorded.made
    assert (solver.param.max_iter, solver.steps, solver.param.base_lr) == (
        iterations,
        iterations,
        pytest.approx(n * 0.02),
    )
    assert solver.param.net_param.layer[0].data_param.batch_size == 64 * n
    assert test.weights is solver and test.passes == 6
    assert found == pytest.approx((100 * 0.35, 1.0)) and figure.RULES[figure.SAME](n) == 0.02
