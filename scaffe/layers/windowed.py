"""Windowed: the base of the layers with a convolution_param."""

from __future__ import annotations

from scaffe.blob import Shape
from scaffe.layers.im2col import Sizes, SlidingWindow
from scaffe.layers.layer import Blobs, Layer


class Windowed(Layer):
    """Slide a window over the spatial axes, those after `axis`.

    `kernel`, `stride`, `pad` and `dilation` have one number per spatial axis.
    """

    def read_window(self, axes: int) -> None:
        """Read the fields for `axes` spatial axes. Raise NetError for a wrong number of values, or a 0."""
        self.kernel = self._sizes("kernel_size", ("kernel_h", "kernel_w"), axes, None)
        self.stride = self._sizes("stride", ("stride_h", "stride_w"), axes, 1)
        self.pad = self._sizes("pad", ("pad_h", "pad_w"), axes, 0)
        self.dilation = self._sizes("dilation", (), axes, 1)
        for field in ("kernel", "stride", "dilation"):
            if 0 in getattr(self, field):
                raise self.error(f"convolution_param has {field} {getattr(self, field)}; give at least 1 for each axis")

    def _sizes(self, field: str, pair: tuple[str, ...], axes: int, default: int | None) -> Sizes:
        """Return a field of convolution_param, one number per spatial axis, from the field or its _h and _w."""
        param = self.param.convolution_param
        values = tuple(getattr(param, field))
        if any(param.HasField(name) for name in pair):
            if values or axes != 2:
                raise self.error(f"{pair[0]} and {pair[1]} need 2 spatial axes and replace {field}; give one form")
            return tuple(getattr(param, name) for name in pair)
        if not values and default is not None:
            values = (default,)
        if len(values) not in (1, axes):
            raise self.error(f"{len(values)} {field} for {axes} spatial axes; give one, or one for each axis")
        return values * axes if len(values) == 1 else values

    def window_over(self, shape: Shape, axis: int) -> SlidingWindow:
        """Return the window over a bottom of this shape. Raise ShapeError if it is larger than the padded bottom."""
        window = SlidingWindow(shape[axis + 1 :], self.kernel, self.stride, self.pad, self.dilation)
        if min(window.out, default=1) < 1:
            raise self.shape_error(
                f"the kernel reaches over {window.extent}, more than the bottom {shape}, padded to "
                f"{window.padded}; choose a smaller kernel or more pad"
            )
        return window

    def mixes_samples(self, bottom: Blobs) -> str:
        return "" if self._axis(bottom) else "its channels are on axis 0"

    def _axis(self, bottom: Blobs) -> int:
        return self.canonical_axis(self.param.convolution_param.axis, bottom[0])
