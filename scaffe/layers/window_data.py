"""WindowData: windows cut from images, foreground and background, drawn at random."""

from __future__ import annotations

from readers import WindowBatches, WindowReader, WindowTransform
from scaffe.layers.base_data import PrefetchingData
from scaffe.layers.layer import Blobs, register


class WindowData(PrefetchingData):
    """Top 0: windows (n x 3 x crop x crop), warped; top 1: labels (n), 0 for background. n is this rank's share.

    Which window a sample is is drawn anew in each batch, as in Caffe: there is no order to shuffle.
    `scale` is taken from transform_param, or from window_data_param, which is where alone Caffe looks for it.
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
