"""Data layers whose images are transformed on the device."""

from __future__ import annotations

from scaffe.engines.cuda.transform import ImageTransform
from scaffe.layers.data import Data
from scaffe.layers.image_data import ImageData
from scaffe.layers.layer import register


class CudaData(Data):
    """Data, its images transformed on the device."""

    device_transform = ImageTransform


class CudaImageData(ImageData):
    """ImageData, its images transformed on the device."""

    device_transform = ImageTransform


register("Data", CudaData, engine="cuda")
register("ImageData", CudaImageData, engine="cuda")
