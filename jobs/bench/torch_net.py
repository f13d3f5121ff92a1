"""TorchNet: a Caffe net in PyTorch, layer by layer, in idiomatic PyTorch: eager, with in-place layers.

    net = TorchNet(scaffe.Net(param, scaffe.TRAIN))
    net(data=images, label=labels).backward()

It supports the layers of the model zoo's training nets over images. A BatchNorm and the Scale after it become one
BatchNorm2d. The weights are copies of the Caffe net's.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import nn

import scaffe
from scaffe.proto import LayerParameter, PoolingParameter

NOT_TRAINED = ("Input", "Split", "Accuracy")


class TorchNet(nn.Module):
    """Computes the loss of the Caffe net `net`."""

    def __init__(self, net: scaffe.Net):
        super().__init__()
        self.steps: list[tuple[list[str], str, float]] = []  # for each module: bottoms, top, weight of the loss or 0
        self.same: dict[str, str] = {}  # tops that equal another blob: those of a Split, or of a Scale in BatchNorm2d
        shapes = {name: blob.shape for name, blob in net.blobs.items()}
        scales = {layer.bottom[0]: layer for layer in net.param.layer if layer.type == "Scale"}
        self.modules_in_order = nn.ModuleList()
        for layer in net.param.layer:
            if layer.type in ("Split", "Scale"):
                self.same.update(dict.fromkeys((top for top in layer.top if top != layer.bottom[0]), layer.bottom[0]))
            elif layer.type not in NOT_TRAINED:
                scale = scales.get(layer.top[0]) if layer.type == "BatchNorm" else None
                module = _module(layer, shapes[layer.bottom[0]], [*net.params.get(layer.name, [])], scale, net)
                weight = layer.loss_weight[0] if layer.type == "SoftmaxWithLoss" else 0.0
                bottoms = [self._source(name) for name in layer.bottom]
                self.modules_in_order.append(module)
                self.steps.append((bottoms, self._source(layer.top[0]), weight))

    def _source(self, name: str) -> str:
        while name in self.same:
            name = self.same[name]
        return name

    def forward(self, **blobs: torch.Tensor) -> torch.Tensor:
        """Return the weighted sum of the losses."""
        losses = []
        for module, (bottoms, top, weight) in zip(self.modules_in_order, self.steps, strict=True):
            result = module(*[blobs[name] for name in bottoms])
            if weight:
                losses.append(weight * result)
            else:
                blobs[top] = result
        return sum(losses[1:], losses[0])


class Concat(nn.Module):
    """Concatenation along axis 1."""

    def forward(self, *bottoms: torch.Tensor) -> torch.Tensor:
        """Return the concatenation of the bottoms."""
        return torch.cat(bottoms, 1)


class Sum(nn.Module):
    """The sum of all bottoms."""

    def forward(self, first: torch.Tensor, *others: torch.Tensor) -> torch.Tensor:
        """Return the sum of the bottoms."""
        return sum(others, first)


class FlatLinear(nn.Linear):
    """Linear over all axes but the first."""

    def forward(self, bottom: torch.Tensor) -> torch.Tensor:
        """Return the product with the bottom, flattened."""
        return super().forward(bottom.flatten(1))


class FlatLoss(nn.CrossEntropyLoss):
    """The mean loss of scores (N x C), or (N x C x 1 x 1)."""

    def forward(self, scores: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """Return the mean loss over the batch."""
        return super().forward(scores.flatten(1), labels)


def _module(
    layer: LayerParameter, shape: tuple[int, ...], params: list, scale: LayerParameter | None, net
) -> nn.Module:
    """Return the module of `layer` for a bottom of `shape`, with its parameters."""
    if layer.type == "Convolution":
        return _with(_convolution(layer.convolution_param, shape[1]), params)
    if layer.type == "InnerProduct":
        p = layer.inner_product_param
        return _with(FlatLinear(int(np.prod(shape[1:])), p.num_output, p.bias_term), params)
    if layer.type == "BatchNorm":
        p = layer.batch_norm_param
        affine = [] if scale is None else net.params[scale.name]
        module = nn.BatchNorm2d(shape[1], p.eps, 1 - p.moving_average_fraction, affine=scale is not None)
        return _with(_with_statistics(module, params), affine)
    if layer.type == "Pooling":
        return _pooling(layer.pooling_param, shape)
    if layer.type == "LRN":
        return _lrn(layer.lrn_param)
    plain = {
        "ReLU": lambda: nn.ReLU(inplace=True),
        "Dropout": lambda: nn.Dropout(layer.dropout_param.dropout_ratio),
        "Concat": Concat,
        "Eltwise": Sum,
        "SoftmaxWithLoss": FlatLoss,
    }
    if layer.type not in plain:
        raise NotImplementedError(f"layer '{layer.name}': no PyTorch form of {layer.type} here")
    return plain[layer.type]()


def _with(module: nn.Module, params: list) -> nn.Module:
    """Copy Caffe's blobs into a module's weight and bias."""
    with torch.no_grad():
        for tensor, blob in zip((module.weight, module.bias), params, strict=False):
            tensor.copy_(torch.from_numpy(blob.data.copy()))
    return module


def _with_statistics(module: nn.BatchNorm2d, params: list) -> nn.BatchNorm2d:
    """Copy Caffe's mean and variance, sums with a common factor; 0 is the factor of none."""
    mean, variance, factor = (torch.from_numpy(blob.data.copy()) for blob in params)
    if factor.item():
        module.running_mean.copy_(mean / factor)
        module.running_var.copy_(variance / factor)
    return module


def _convolution(p, channels: int) -> nn.Module:
    one = {"pad": 0, "stride": 1, "dilation": 1}
    kernel, pad, stride, dilation = (
        getattr(p, name)[0] if getattr(p, name) else one[name] for name in ("kernel_size", "pad", "stride", "dilation")
    )
    return nn.Conv2d(channels, p.num_output, kernel, stride, pad, dilation, p.group, p.bias_term)


def _pooling(p, shape: tuple[int, ...]) -> nn.Module:
    if p.global_pooling:
        return nn.AdaptiveAvgPool2d(1) if p.pool == PoolingParameter.AVE else nn.AdaptiveMaxPool2d(1)
    kind = nn.AvgPool2d if p.pool == PoolingParameter.AVE else nn.MaxPool2d
    return kind(p.kernel_size, p.stride, p.pad, ceil_mode=p.round_mode == PoolingParameter.CEIL)


def _lrn(p) -> nn.Module:
    if p.norm_region == p.WITHIN_CHANNEL:
        raise NotImplementedError("LRN within a channel has no PyTorch form here")
    return nn.LocalResponseNorm(p.local_size, p.alpha, p.beta, p.k)


def training(
    model: nn.Module, x: torch.Tensor, y: torch.Tensor, channels_last: bool, numbers: str = "float32", **fields: float
):
    """Return one iteration of SGD on a batch, in a memory format; `fields` are the optimiser's."""
    model, x = _laid_out(model, x, channels_last)
    optimiser = torch.optim.SGD(model.parameters(), **fields)

    def iteration() -> None:
        optimiser.zero_grad()
        with autocast(numbers):
            loss = model(data=x, label=y)
        loss.backward()
        optimiser.step()

    return iteration


def inference(model: nn.Module, x: torch.Tensor, y: torch.Tensor, channels_last: bool, numbers: str = "float32"):
    """Return one forward pass on a batch under inference_mode, in a memory format."""
    model, x = _laid_out(model.eval(), x, channels_last)

    def iteration() -> None:
        with torch.inference_mode(), autocast(numbers):
            model(data=x, label=y)

    return iteration


def autocast(numbers: str):
    """Return the context in which PyTorch computes in these numbers: for "bf16" its autocast on the CPU."""
    return torch.autocast("cpu", torch.bfloat16, enabled=numbers == "bf16")


def _laid_out(model: nn.Module, x: torch.Tensor, channels_last: bool) -> tuple[nn.Module, torch.Tensor]:
    layout = torch.channels_last if channels_last else torch.contiguous_format
    return model.to(memory_format=layout), x.to(memory_format=layout)


def batch(net: scaffe.Net) -> tuple[torch.Tensor, torch.Tensor]:
    """Return copies of a net's images and labels."""
    return torch.from_numpy(net.blobs["data"].data.copy()), torch.from_numpy(net.blobs["label"].data.astype(np.int64))
