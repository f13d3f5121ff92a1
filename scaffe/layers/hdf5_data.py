"""HDF5Data: batches of rows of HDF5 files."""

from __future__ import annotations

from dataclasses import replace

from readers import BatchFiller, FileShuffle, HDF5Batches, HDF5Reader, Shard
from scaffe.layers.base_data import PrefetchingData
from scaffe.layers.layer import ANY, Blobs, register

FILES = "files"  # Caffe's `shuffle`: the order of the files, and of the rows in each file


class HDF5Data(PrefetchingData):
    """Read rows of HDF5 files without transforming them.

    `source` is a text file with one HDF5 file per line. Each top (n x ...) holds rows of the dataset with the top's
    name; n is this rank's share of batch_size. `shuffle` draws a new order of the files, and of the rows in each, for
    each epoch; it depends on the seed, not on the number of ranks. The run's `--shuffle`, over the rows of all files,
    takes precedence.
    """

    tops = (1, ANY[1])

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        p = self.param.hdf5_data_param
        if self.param.HasField("transform_param"):
            raise self.error("does not transform data; remove transform_param and apply a Scale or Power layer")
        self._reader = HDF5Reader(self.named(p.source), list(self.param.top))
        self.own_shuffle = FILES if p.shuffle else "none"
        self.take_part(len(self._reader), p.batch_size)
        self.look_ahead()

    def reading(self) -> BatchFiller:
        return self.passing_over(lambda first: HDF5Batches(self._reader, self.ordered()))

    def ordered(self) -> Shard:
        if self.shuffle != FILES:
            return super().ordered()
        return replace(self.shard, order=FileShuffle(self.context.seed, self._reader.rows))


register("HDF5Data", HDF5Data)
