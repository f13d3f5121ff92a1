"""Well-known nets, written with NetSpec, each as train_val, deploy and solver.

from scaffe import models
models.get("googlenet").train_val(batch=32)

Layers have the names of the published prototxt files, so that published .caffemodel files load.
"""

from __future__ import annotations

from scaffe.errors import ScaffeError
from scaffe.models.gnmt import GNMT
from scaffe.models.googlenet import GOOGLENET, INCEPTION_BN
from scaffe.models.imagenet import ALEXNET, CAFFENET, NIN, VGG16, VGG19
from scaffe.models.lstm import LSTM
from scaffe.models.mobilenet import MOBILENET
from scaffe.models.model import DATA, Head, Model
from scaffe.models.ncf import NCF
from scaffe.models.resnet import RESNET50, RESNET101
from scaffe.models.small import CIFAR10_FULL, CIFAR10_FULL_SIGMOID, CIFAR10_FULL_SIGMOID_BN, CIFAR10_QUICK, LENET
from scaffe.models.word_lm import WORD_LM
from scaffe.near import near

__all__ = ["DATA", "MODELS", "Head", "Model", "get"]

_ALL = (
    LENET, CIFAR10_QUICK, CIFAR10_FULL, CIFAR10_FULL_SIGMOID, CIFAR10_FULL_SIGMOID_BN, ALEXNET, CAFFENET, NIN, VGG16,
    VGG19, GOOGLENET, INCEPTION_BN, RESNET50, RESNET101, MOBILENET, LSTM, WORD_LM, GNMT, NCF,
)  # fmt: skip
MODELS: dict[str, Model] = {model.name: model for model in _ALL}


def get(name: str) -> Model:
    """Return the model called `name`. Raise ScaffeError, which lists the known ones, for another name."""
    if name not in MODELS:
        raise ScaffeError(f"unknown model '{name}'{near(name, MODELS, 'known models')}")
    return MODELS[name]
