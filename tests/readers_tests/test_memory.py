"""Readers keep nothing for each record: a million of them, in random order, fit where one number each would not."""

from __future__ import annotations

import subprocess
import sys
import tracemalloc
from pathlib import Path

import lmdb
import numpy as np
import pytest

from readers import encode
from readers.image_list import ImageList

ROOT = Path(__file__).resolve().parents[2]
MILLION = 1_000_000
LINES = 30_000

GROWTH = """if True:
    import itertools, re, sys
    from readers import BatchQueue, BatchReader, LMDBReader, Shard, Transform, order

    def private():
        return int(re.search("RssAnon: *([0-9]+) kB", open("/proc/self/status").read().replace("\\t", " "))[1]) << 10

    def read(shuffle):
        reader = LMDBReader(sys.argv[1])
        shard = Shard(len(reader), 10, 0, 10, first=len(reader) - 50, order=order(shuffle, 1, len(reader)))
        batches = BatchReader(reader, shard, Transform(mirror=True))
        with BatchQueue(batches.fill, itertools.count(), batches.allocate(3), threads=2) as queue:
            for number in range(20):  # the last 50 records of an epoch, then the next
                batch = queue.get()
                assert all(label == int(key) % 1000 for key, label in zip(batch.keys, batch.label))
                queue.recycle(batch)

    before = private()
    for shuffle in ("none", "full", "block:1000"):
        read(shuffle)
    print(private() - before)
"""


@pytest.fixture
def million(tmp_path):
    """An LMDB of a million images of one pixel."""
    keys = (b"%08d" % number for number in range(MILLION))
    values = [encode(np.zeros((1, 1, 1), np.uint8), label) for label in range(1000)]
    database = lmdb.open(str(tmp_path / "db"), map_size=1 << 28, sync=False)
    with database, database.begin(write=True) as transaction, transaction.cursor() as cursor:
        cursor.putmulti(((key, values[n % 1000]) for n, key in enumerate(keys)), append=True)
    return tmp_path / "db"


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="this system doesn't tell a process's own memory")
def test_a_million_records_in_any_order_take_less_memory_than_a_number_each(million):
    command = [sys.executable, "-c", GROWTH, str(million)]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert run.returncode == 0, run.stderr
    assert int(run.stdout) < 4 * MILLION


def test_a_list_takes_its_file_and_three_numbers_a_line(tmp_path):
    path = tmp_path / "list"
    path.write_text("".join(f"n{number:08d}/image_{number:08d}.JPEG {number % 1000}\n" for number in range(LINES)))
    tracemalloc.start()
    try:
        images = ImageList(path)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert images[LINES - 1] == ("n00029999/image_00029999.JPEG", 999)
    numbers = 8 + 8 + 4  # bytes: where a name starts and stops, and the label
    assert taken < path.stat().st_size + 1.25 * numbers * LINES  # arrays grow in steps
