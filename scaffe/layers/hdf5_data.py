"""HDF5Data: rows of HDF5 files, as they are."""

from __future__ import annotations

from dataclasses import replace

from readers import FileShuffle, HDF5Batches, HDF5Reader, Shard
from scaffe.layers.base_data import PrefetchingData, Reading
from scaffe.layers.layer import ANY, Blobs, register

FILES = "files"  # and the rows of each: Caffe's `shuffle`


class HDF5Data(PrefetchingData):
    """Each top (n x ...): rows of the dataset of its name, in the files that the list `source` names.

    `shuffle` puts the files, and the rows of each, in another order in each epoch, by the seed, the same for any
    number of ranks; the run's own `--shuffle` goes before it, over the rows of all files. n is this rank's share of
    batch_size.
    """

    tops = (1, ANY[1])

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        p = self.param.hdf5_data_param
        if self.param.HasField("transform_param"):
            raise self.error("does not transform data; take transform_param away, and Scale or Power to the tops")
        self._reader = HDF5Reader(self.named(p.source), list(self.param.top))
        self.own_shuffle = FILES if p.shuffle else "none"
        self.take_part(len(self._reader), p.batch_size)
        self.look_ahead()

    def reading(self) -> Reading:
        return self.passing_over(lambda first: HDF5Batches(self._reader, self.ordered()))

    def ordered(self) -> Shard:
        if self.shuffle != FILES:
            return super().ordered()
        return replace(self.shard, order=FileShuffle(self.context.seed, self._reader.rows))


register("HDF5Data", HDF5Data)
