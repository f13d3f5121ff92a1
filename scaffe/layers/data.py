"""Data: batches of records from an LMDB or LevelDB."""

from __future__ import annotations

from dataclasses import replace

from readers import BatchFiller, BatchReader, open_database
from scaffe.layers.base_data import PrefetchingData
from scaffe.layers.layer import Blobs, register


class Data(PrefetchingData):
    """Read images and labels from a database. Reader threads of this rank read ahead.

    Tops: images (n x C x h x w), transformed; labels (n). n is this rank's share of batch_size. The files of `source`
    tell whether it is an LMDB or a LevelDB; `backend` is not needed.
    """

    tops = (1, 2)

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        data = self.param.data_param
        self._reader = open_database(self.named(data.source))
        self._transform = self.transform()
        self.take_part(len(self._reader), data.batch_size, self.skip(data.rand_skip))
        self.look_ahead()

    def reading(self) -> BatchFiller:
        transform = replace(self._transform, seed=self.context.seed)
        return self.passing_over(lambda first: BatchReader(self._reader, self.ordered(), transform, first))


register("Data", Data)
