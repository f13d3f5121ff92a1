"""Data layers whose images are transformed on the device."""

from __future__ import annotations

from functools import partial

from scaffe.blobs.delivery import Delivery
from scaffe.engines.cuda.engine import engine_of
from scaffe.engines.cuda.transform import ImageTransform
from scaffe.layers.data import Data
from scaffe.layers.image_data import ImageData
from scaffe.layers.layer import Layer, register


def transforming(layer: Layer) -> Delivery:
    """Return a delivery that transforms images on the device."""
    engine = engine_of(layer)
    return engine.delivery(partial(ImageTransform, engine))


class CudaData(Data):
    """Data, its images transformed on the device."""

    def make_delivery(self) -> Delivery:
        return transforming(self)


class CudaImageData(ImageData):
    """ImageData, its images transformed on the device."""

    def make_delivery(self) -> Delivery:
        return transforming(self)


register("Data", CudaData, engine="cuda")
register("ImageData", CudaImageData, engine="cuda")
