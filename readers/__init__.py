"""Readers of training records: sources, Caffe's transforms, each rank's shard, and queues of batches read ahead.

In a job of one process::

    reader = LMDBReader("digits_train_lmdb")
    shard = Shard.strong(len(reader), batch=64, rank=0, size=1)
    source = BatchReader(reader, shard, Transform(scale=1 / 256))
    with BatchQueue(source.fill, itertools.count(), source.allocate(4)) as queue:
        batch = queue.get()
        ...
        queue.recycle(batch)
"""

from readers.batch_queue import Batch, BatchMemory, BatchQueue, Raw
from readers.batch_reader import BatchReader
from readers.cifar10 import convert_cifar10
from readers.database import Database, open_database
from readers.database_writer import DatabaseWriter, write_database
from readers.datum import blob_shape, decode, encode, has_old_shape, read_mean, write_mean
from readers.digits import convert_digits
from readers.errors import EndOfBatches, ReaderError, RecordError, SourceError
from readers.files import replace_file
from readers.hdf5_reader import HDF5Batches, HDF5Reader
from readers.hdf5_writer import HDF5Writer
from readers.image import decode_image, resize
from readers.image_list import ImageList
from readers.image_mean import compute_image_mean
from readers.image_reader import ImageReader
from readers.imageset import convert_imageset
from readers.leveldb_reader import LevelDBReader
from readers.lmdb_reader import LMDBReader
from readers.lmdb_writer import LMDBWriter, write_lmdb
from readers.mnist import convert_mnist
from readers.settings import Reading, Settings
from readers.shard import Shard, share
from readers.sharded_lmdb import ShardedLMDB
from readers.shuffle import BlockShuffle, FileShuffle, Shuffle, order
from readers.skipping import BatchFiller, SkippingBatches
from readers.synthetic import SyntheticReader
from readers.threads import most_threads
from readers.transform import Transform
from readers.window_reader import WindowBatches, WindowReader
from readers.window_transform import WindowTransform

Memory = BatchMemory  # the name until 0.1

__all__ = [
    "Batch",
    "BatchFiller",
    "BatchMemory",
    "BatchQueue",
    "BatchReader",
    "BlockShuffle",
    "Database",
    "DatabaseWriter",
    "EndOfBatches",
    "FileShuffle",
    "HDF5Batches",
    "HDF5Reader",
    "HDF5Writer",
    "ImageList",
    "ImageReader",
    "LMDBReader",
    "LMDBWriter",
    "LevelDBReader",
    "Memory",
    "Raw",
    "ReaderError",
    "Reading",
    "RecordError",
    "Settings",
    "Shard",
    "ShardedLMDB",
    "Shuffle",
    "SkippingBatches",
    "SourceError",
    "SyntheticReader",
    "Transform",
    "WindowBatches",
    "WindowReader",
    "WindowTransform",
    "blob_shape",
    "compute_image_mean",
    "convert_cifar10",
    "convert_digits",
    "convert_imageset",
    "convert_mnist",
    "decode",
    "decode_image",
    "encode",
    "has_old_shape",
    "most_threads",
    "open_database",
    "order",
    "read_mean",
    "replace_file",
    "resize",
    "share",
    "write_database",
    "write_lmdb",
    "write_mean",
]
