"""WindowData: random windows of images, foreground and background."""

from __future__ import annotations

from readers import WindowBatches, WindowReader, WindowTransform
from scaffe.layers.base_data import PrefetchingData
from scaffe.layers.layer import Blobs, register


class WindowData(PrefetchingData):
    """Read windows of images that a window file lists, warped to the crop size.

    Tops: windows (n x 3 x crop x crop); labels (n), 0 for background. n is this rank's share of batch_size. As in
    Caffe, each batch draws its windows at random, so there is no order to shuffle. `scale` is read from
    transform_param, else from window_data_param, the only place where Caffe reads it.
    """

    tops = (2, 2)
    shuffle = ""

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        p, common = self.param.window_data_param, self.transform()
        self._reader = WindowReader(self.named(p.source), p.root_folder, p.fg_threshold, p.bg_threshold, p.cache_images)
        self._transform = WindowTransform(
            crop_size=common.crop_size,
            scale=common.scale if self.param.transform_param.HasField("scale") else p.scale,
            mirror=common.mirror,
            mean=common.mean,
            mean_values=common.mean_values,
            context_pad=p.context_pad,
            crop_mode=p.crop_mode,
        )
        self.take_part(len(self._reader), p.batch_size)
        self.look_ahead()

    def reading(self) -> WindowBatches:
        fraction = self.param.window_data_param.fg_fraction
        return WindowBatches(
            self._reader, self.shard, self._transform, fraction, self.context.seed, self.spare, self.labels
        )


register("WindowData", WindowData)
