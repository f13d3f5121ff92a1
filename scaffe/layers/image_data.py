"""ImageData: batches of image files."""

from __future__ import annotations

from dataclasses import replace

from readers import BatchFiller, BatchReader, ImageReader
from scaffe.layers.base_data import PrefetchingData
from scaffe.layers.layer import Blobs, register


class ImageData(PrefetchingData):
    """Read the image files that the list `source` names; each line has a file name and a label.

    Tops: images (n x C x h x w), resized, then transformed; labels (n). n is this rank's share of batch_size, and a
    rank opens its own files only. `shuffle` draws a new order of the list for each epoch; it depends on the seed, not
    on the number of ranks. The run's `--shuffle` takes precedence.
    """

    tops = (2, 2)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        p = self.param.image_data_param
        if (p.new_height > 0) != (p.new_width > 0):
            raise self.error(f"give both new_height and new_width or neither, got {p.new_height} and {p.new_width}")
        self._reader = ImageReader(self.named(p.source), p.root_folder, p.new_height, p.new_width, p.is_color)
        self._transform = self.transform()
        self.own_shuffle = "full" if p.shuffle else "none"
        self.take_part(len(self._reader), p.batch_size, self.skip(p.rand_skip))
        self.look_ahead()

    def reading(self) -> BatchFiller:
        transform = replace(self._transform, seed=self.context.seed)
        return self.passing_over(lambda first: BatchReader(self._reader, self.ordered(), transform, first))


register("ImageData", ImageData)
