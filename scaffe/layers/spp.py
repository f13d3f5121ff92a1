"""SPP: spatial pyramid pooling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.blob import Blob, Shape
from scaffe.layers.layer import Blobs, Layer, register
from scaffe.layers.pooling import Pooling
from scaffe.proto import LayerParameter, PoolingParameter


class SPP(Layer):
    """y = the poolings of x over grids of 1 x 1, 2 x 2, 4 x 4, ... windows, concatenated.

    x (N x C x H x W), H and W of any size; y (N x C (1 + 4 + 16 + ...)), one term for each of the `pyramid_height`
    grids. `pool` is MAX, AVE or STOCHASTIC. He et al. 2014, section 2.2.
    """

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        self.height = self.param.spp_param.pyramid_height
        if not self.height:
            raise self.error("spp_param needs pyramid_height, at least 1")

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        shape = bottom[0].shape
        if len(shape) != 4:
            raise self.shape_error(f"needs a bottom with 4 axes (N x C x H x W), got shape {shape}")
        self.pools = [self._pooling(2**level, shape) for level in range(self.height)]
        self.pooled = [Blob((), self.xp) for _ in self.pools]
        for pool, blob in zip(self.pools, self.pooled, strict=True):
            pool.setup(bottom, [blob])
            pool.reshape(bottom, [blob])
        top[0].reshape(shape[0], sum(blob.count for blob in self.pooled) // shape[0])

    def _pooling(self, bins: int, shape: Shape) -> Pooling:
        """Return the layer that pools images into bins x bins windows, with the padding that they need."""
        kernel = [-(-size // bins) for size in shape[2:]]
        pad = [(k * bins - size + 1) // 2 for k, size in zip(kernel, shape[2:], strict=True)]
        if any(p >= k for p, k in zip(pad, kernel, strict=True)):
            raise self.shape_error(f"images of {shape} are too small for {bins} x {bins} windows; lower pyramid_height")
        spp = self.param.spp_param
        param = PoolingParameter(pool=spp.PoolMethod.Name(spp.pool))
        for axis, k, p in zip("hw", kernel, pad, strict=True):
            for field, value in (("kernel", k), ("stride", k), ("pad", p)):
                setattr(param, f"{field}_{axis}", value)
        return Pooling(LayerParameter(name=f"{self.label}/{bins}", type="Pooling", pooling_param=param), self.context)

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        parts = self._parts(top[0].array)
        for pool, blob, part in zip(self.pools, self.pooled, parts, strict=True):
            blob.array = self.buffer(pool.name, blob.shape, part.dtype)
            pool.forward(bottom, [blob])
            part[...] = blob.array.reshape(part.shape)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if not propagate_down[0]:
            return
        dx, x = bottom[0].diff_array, Blob(bottom[0].shape, self.xp)
        x.array, x.diff_array = bottom[0].array, self.buffer("diff", dx.shape, dx.dtype)
        dx[...] = 0
        for pool, blob, part in zip(self.pools, self.pooled, self._parts(top[0].diff_array), strict=True):
            blob.diff_array = part
            pool.backward([blob], [True], [x])
            dx += x.diff_array

    def _parts(self, array: Any) -> list[Any]:
        """Return each grid's part of the top, a view."""
        ends = [0]
        for blob in self.pooled:
            ends.append(ends[-1] + blob.count // blob.num)
        return [array[:, start:stop] for start, stop in zip(ends, ends[1:])]  # noqa: B905


register("SPP", SPP)
