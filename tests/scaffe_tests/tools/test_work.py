"""The operations and bytes of layers: counted by hand for a small net."""

from __future__ import annotations

from pathlib import Path

import pytest

from scaffe.context import TEST, TRAIN
from scaffe.net.net import Net
from scaffe.tools.work import LayerWork, layer_works

NET = """
layer {
  name: "data" type: "DummyData" top: "x" top: "y"
  dummy_data_param { shape { dim: 4 dim: 3 dim: 6 dim: 5 } shape { dim: 4 } }
}
layer {
  name: "conv" type: "Convolution" bottom: "x" top: "conv"
  convolution_param { num_output: 40 kernel_size: 3 weight_filler { type: "xavier" } }
}
layer { name: "relu" type: "ReLU" bottom: "conv" top: "conv" }
layer { name: "bn" type: "BatchNorm" bottom: "conv" top: "bn" }
layer {
  name: "frozen" type: "InnerProduct" bottom: "bn" top: "frozen" param { lr_mult: 0 } param { lr_mult: 0 }
  inner_product_param { num_output: 7 }
}
layer { name: "loss" type: "SoftmaxWithLoss" bottom: "frozen" bottom: "y" top: "loss" }
"""
X, CONV, IP, Y = 4 * 3 * 6 * 5, 4 * 40 * 4 * 3, 4 * 7, 4
WEIGHTS = 40 * 3 * 3 * 3 + 40


@pytest.fixture
def works(tmp_path: Path) -> dict[str, LayerWork]:
    (tmp_path / "net.prototxt").write_text(NET)
    return layer_works(Net(tmp_path / "net.prototxt", phase=TRAIN))


def test_a_convolution_computes_its_weights_gradients_alone_above_data(works) -> None:
    products = 2.0 * CONV * 3 * 3 * 3
    assert works["conv"] == LayerWork(
        flops=(products, products),
        moved=(4 * (X + CONV), 4 * (X + CONV)),
        parameters=4 * WEIGHTS,
        gradients=4 * WEIGHTS,
        units=4 * 3,  # blocks of 16 of 40 channels
    )


def test_a_layer_without_products_reads_its_bottoms_and_writes_its_tops(works) -> None:
    assert works["relu"] == LayerWork((0, 0), (4 * 2 * CONV, 4 * 3 * CONV), 0, 0, 12)


def test_statistics_and_frozen_parameters_have_no_gradients(works) -> None:
    assert (works["bn"].parameters, works["bn"].gradients) == (4 * (40 + 40 + 1), 0)
    frozen = works["frozen"]
    assert (frozen.parameters, frozen.gradients) == (4 * 7 * (40 * 4 * 3 + 1), 0)
    products = 2.0 * 4 * 7 * 40 * 4 * 3
    assert frozen.flops == (products, products)  # those of its bottom's gradients
    assert frozen.moved == (4 * (CONV + IP), 4 * (2 * CONV + IP))


def test_a_split_adds_gradients_and_copies_nothing_forward(tmp_path) -> None:
    layer = 'layer { name: "again" type: "AbsVal" bottom: "frozen" top: "again" }'
    loss = 'layer { name: "second" type: "EuclideanLoss" bottom: "again" bottom: "again" top: "second" }'
    (tmp_path / "net.prototxt").write_text(NET + layer + loss)
    work = layer_works(Net(tmp_path / "net.prototxt", phase=TRAIN))["frozen_frozen_0_split"]
    assert work.moved == (0, 4 * (1 + 2 + 1) * IP)


def test_a_loss_reads_labels_and_a_reader_has_no_units(works) -> None:
    assert works["loss"].moved == (4 * (IP + Y + 1), 4 * (2 * IP + Y + 1))
    assert works["data"].units == 0


def test_a_layer_that_no_gradient_reaches_does_nothing_backward(tmp_path) -> None:
    (tmp_path / "net.prototxt").write_text(
        NET.replace('bottom: "y" top: "loss"', 'bottom: "y" top: "loss" loss_weight: 0')
    )
    works = layer_works(Net(tmp_path / "net.prototxt", phase=TEST))
    assert works["conv"].flops[1] == works["conv"].moved[1] == works["conv"].gradients == 0


def test_a_recurrent_layer_uses_each_weight_in_each_step(tmp_path) -> None:
    (tmp_path / "net.prototxt").write_text(
        """
        layer {
          name: "data" type: "DummyData" top: "x" top: "cont"
          dummy_data_param { shape { dim: 5 dim: 3 dim: 2 } shape { dim: 5 dim: 3 } }
        }
        layer { name: "lstm" type: "LSTM" bottom: "x" bottom: "cont" top: "h" recurrent_param { num_output: 4 } }
        """
    )
    work = layer_works(Net(tmp_path / "net.prototxt", phase=TRAIN))["lstm"]
    assert work.flops[0] == 2 * 5 * 3 * (4 * 4 * 2 + 4 * 4 * 4)
