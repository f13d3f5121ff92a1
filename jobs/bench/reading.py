"""How fast batches are read, and their bounds: Pillow's decoder alone, a plain cast. See reading.sh.

How fast Pillow's decoder is depends on where malloc puts its rows of pixels (see readers/jpeg.py). So it is measured
where they lie best, in this thread, whose readers see to that: that is the bound. And as it comes, in new processes.
"""

from __future__ import annotations

import argparse
import io
import itertools
import multiprocessing
import os
import pickle
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np
from core_rate import CoreRate
from PIL import Image
from waiting import waited

from readers import BatchQueue, BatchReader, ImageReader, LMDBReader, Shard, Transform, encode, write_lmdb

JPEGS, CIFAR, BATCH = 256, 10_000, 32
LATEST = 60  # seconds in which processes start
GOALS = {"mean values": ">= 0.95", "a mean image": ">= 0.9"}
Rate = Callable[[], float]


def jpegs() -> list[bytes]:
    """Return the content of 64 JPEGs of 256 x 256, with about as many bytes as ImageNet's."""
    rng, files = np.random.RandomState(0), []
    for _ in range(64):
        file = io.BytesIO()
        coarse = Image.fromarray(rng.randint(0, 256, (33, 33, 3)).astype(np.uint8))
        coarse.resize((256, 256), Image.Resampling.BICUBIC).save(file, "JPEG", quality=90)
        files.append(file.getvalue())
    return files


def build(folder: str, contents: list[bytes]) -> None:
    """Build an LMDB of JPEGs, one of raw 32 x 32 images, and the pickled list of JPEGs for loader.py."""
    write_lmdb(f"{folder}/jpeg", ((b"%08d" % i, encode(contents[i % 64], i % 10)) for i in range(JPEGS)))
    images = np.random.RandomState(1).randint(0, 256, (CIFAR, 3, 32, 32)).astype(np.uint8)
    write_lmdb(f"{folder}/cifar", ((b"%05d" % i, encode(image, i % 10)) for i, image in enumerate(images)))
    with open(f"{folder}/contents", "wb") as file:
        pickle.dump(contents, file)


def timed(count: int, work: Callable[[], object]) -> float:
    """Return the items per second of `work`, which handles `count` items."""
    begin = time.perf_counter()
    work()
    return count / (time.perf_counter() - begin)


def bare(contents: list[bytes]) -> float:
    """Return the images per second of Pillow's decoder alone. Each image is dropped: the next has its memory."""

    def decode() -> None:
        for content in contents:
            Image.open(io.BytesIO(content)).load()

    decode()  # imports
    return timed(len(contents), decode)


def anew(contents: list[bytes]) -> float:
    """Return the images per second of Pillow's decoder alone in a new process, where rows begin by chance."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(bare, (contents,))


def filled(source: str, transform: Transform, batch: int, batches: int) -> Rate:
    """Return a function that measures batches filled in this thread, from an LMDB or a list of image files."""
    reader = ImageReader(source) if source.endswith(".txt") else LMDBReader(source)
    filling = BatchReader(reader, Shard.whole(len(reader), batch), transform)
    [target], numbers = filling.allocate(1), itertools.count()
    return lambda: timed(batch * batches, lambda: [filling.fill(next(numbers), target) for _ in range(batches)])


def by_pillow(rate: Rate) -> Rate:
    """Return the function of a rate for readers without the extra jpeg."""

    def turn() -> float:
        with patch("readers.jpeg.simplejpeg", None):
            return rate()

    return turn


def queued(source: str, transform: Transform, batches: int, threads: int) -> Rate:
    """Return a function that measures batches filled by `threads` threads, into memory that is used already."""
    reader = LMDBReader(source)
    filling = BatchReader(reader, Shard.whole(len(reader), BATCH), transform)
    population = filling.allocate(threads + 1)
    for batch in population:
        filling.fill(0, batch)

    def turn() -> float:
        with BatchQueue(filling.fill, itertools.count(), population, threads) as queue:
            queue.recycle(queue.get())
            return timed(BATCH * batches, lambda: [queue.recycle(queue.get()) for _ in range(batches)])

    return turn


def copied() -> float:
    """Return the raw images per second of a plain cast to float32, the bound of their transform."""
    pixels = np.zeros((100, 3, 32, 32), np.uint8)
    out = np.empty(pixels.shape, np.float32)
    return timed(100 * 100, lambda: [np.copyto(out, pixels) for _ in range(100)])


def processes(source: str, count: int, seconds: float = 1.0, batch: int = 100) -> tuple[float, float]:
    """Return the records that `count` processes read in all, from one LMDB or list of files: a second, a core's second.

    The second figure counts the seconds of the processors alone: another program on the cores hardly changes it.
    """
    fork = multiprocessing.get_context("fork")
    start, found = fork.Barrier(count), fork.Queue()
    running = [fork.Process(target=read_for, args=(source, seconds, batch, start, found)) for _ in range(count)]
    for process in running:
        process.start()
    each = [found.get(timeout=seconds + 2 * LATEST) for _ in running]  # a process may have ended
    for process in running:
        process.join()
    records = sum(one[0] for one in each)
    return sum(one[0] / one[1] for one in each), records / sum(one[2] for one in each)


def read_for(source: str, seconds: float, batch: int, start: Any, found: Any) -> None:
    """Read batches for `seconds` once all processes have started; put records, seconds and the core's into `found`."""
    turn, count = filled(source, Transform(), batch, 1), 0
    turn()
    start.wait(LATEST)
    used, begin = time.process_time(), time.monotonic()
    now = begin
    while now < begin + seconds:
        turn()
        count, now = count + batch, time.monotonic()
    found.put((count, now - begin, time.process_time() - used))


def many_over_few(source: str, readers: int, turns: int) -> tuple[float, float]:
    """Return what `readers` processes read over what 2 do: a second, and a core's second. Medians of pairs of turns."""
    pairs = []
    for turn in range(turns):
        counts = (2, readers) if turn % 2 else (readers, 2)
        got = {count: processes(source, count) for count in counts}
        pairs.append([many / few for few, many in zip(got[2], got[readers], strict=True)])
    wall, core = (median(one) for one in zip(*pairs, strict=True))
    return wall, core


class Loader:
    """PyTorch's DataLoader in an interpreter of its own: a call measures a turn."""

    def __init__(self, python: str, contents: str):
        script = os.path.join(os.path.dirname(__file__), "loader.py")
        self.process = subprocess.Popen(
            [python, script, contents], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __call__(self) -> float:
        """Return the images per second of a turn."""
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write("go\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())

    def close(self) -> None:
        """End the interpreter."""
        self.process.communicate()


def measured(turns: int, **rates: Rate) -> dict[str, list[float]]:
    """Return each rate in `turns` turns; in a turn all are measured one after the other."""
    taken = [{name: rate() for name, rate in rates.items()} for _ in range(turns)]
    return {name: [turn[name] for turn in taken] for name in rates}


def ratio(over: list[float], under: list[float]) -> float:
    """Return the median of the turns' ratios: what slows the machine for a while slows both."""
    return median(a / b for a, b in zip(over, under, strict=True))


def rows(folder: str, contents: list[bytes], turns: int, readers: int, torch: str) -> Iterator[tuple[str, float, str]]:
    """Measure; yield for each line its name, its ratio or rate, and its goal. The extra is simplejpeg."""
    product = CoreRate("float32")
    yield "One core: oneDNN's sgemm, GFLOP/s", median(product.once() for _ in range(5)), ""
    mean = np.full((3, 256, 256), 117, np.float32)
    values = Transform(mean_values=(104, 117, 123), crop_size=227, mirror=True, train=True)
    image = Transform(mean=mean, crop_size=227, mirror=True, train=True)
    loader = Loader(torch, f"{folder}/contents") if torch else None
    jpeg = f"{folder}/jpeg"
    rates = {"mean values": filled(jpeg, values, BATCH, 4), "a mean image": filled(jpeg, image, BATCH, 4)}
    rates |= {f"{n} threads": queued(jpeg, image, 4 * n, n) for n in (1, 2)}
    rates |= {f"{name}, without the extra": by_pillow(rate) for name, rate in rates.items()}
    rates["mean values, without the extra"]()  # from here on rows of bare decoding in this thread lie best
    rates |= {"bare": lambda: bare(contents), "anew": lambda: anew(contents)} | ({"torch": loader} if loader else {})
    got = measured(turns, **rates)
    if loader:
        loader.close()
    yield "JPEG: Pillow's decoder alone, its rows in the cache, images/s", median(got["bare"]), "the bound"
    yield "JPEG: Pillow's decoder alone, in new processes, images/s", median(got["anew"]), ""
    for extra, what in itertools.product(("", ", without the extra"), ("mean values", "a mean image")):
        yield f"JPEG: with {what}{extra}, images/s", median(got[what + extra]), ""
        yield f"JPEG: with {what}{extra} / the bound", ratio(got[what + extra], got["bare"]), GOALS[what]
        yield f"JPEG: with {what}{extra} / in new processes", ratio(got[what + extra], got["anew"]), ""
    if loader:
        yield "JPEG: one thread / DataLoader, one worker", ratio(got["1 threads"], got["torch"]), ">= 1"
    for extra in ("", ", without the extra"):
        found = ratio(got["2 threads" + extra], got["1 threads" + extra])
        yield f"JPEG: two threads{extra} / one", found, ">= 1.85 on two cores"
    crop = Transform(mean=np.full((3, 32, 32), 117, np.float32), crop_size=28, mirror=True, train=True)
    plain = Transform(mean=np.full((3, 32, 32), 117, np.float32))
    cifar = f"{folder}/cifar"
    got = measured(turns, cast=copied, plain=filled(cifar, plain, 100, 100), crop=filled(cifar, crop, 100, 100))
    yield "Raw 3 x 32 x 32: a cast alone, records/s", median(got["cast"]), "the bound"
    yield "Raw 3 x 32 x 32: less the mean, records/s", median(got["plain"]), ">= 60000"
    yield "Raw 3 x 32 x 32: cropped and mirrored too, records/s", median(got["crop"]), ">= 150000"
    yield "CIFAR-10 quick: of the time spent waiting for records, %", median(waited(cifar) for _ in range(3)), "< 1"
    if readers:
        wall, core = many_over_few(cifar, readers, turns)
        yield f"One LMDB: {readers} processes / 2", wall, ">= 1"
        yield f"One LMDB: {readers} processes / 2, by the cores' seconds", core, ">= 1"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=7, help="turns of each rate (default: %(default)s)")
    parser.add_argument(
        "--readers", type=int, default=64, help="processes that read one LMDB; 0: none (default: %(default)s)"
    )
    parser.add_argument("--torch", default="", metavar="PYTHON", help="an interpreter with torch, for DataLoader")
    parser.add_argument(
        "--folder", default="/dev/shm", help="parent of a temporary folder for the databases (default: %(default)s)"
    )
    a = parser.parse_args()
    folder = tempfile.mkdtemp(prefix="scaffe-reading.", dir=a.folder)
    try:
        contents = jpegs()
        build(folder, contents)
        for what, number, goal in rows(folder, contents, a.turns, a.readers, a.torch):
            text = f"{number:.0f}" if number > 100 else f"{number:.2f}"
            print(f"{what:<66}{text:>9}  {goal}", flush=True)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
