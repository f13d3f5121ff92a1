"""Batches copied ahead reach the net unharmed, though copies and computing happen late and out of step."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest
from fake_device import FakeDevice, FakeStream
from strict_arrays import a_gpu

from readers import Batch, BatchQueue
from readers.batch_queue import Raw, allocate
from scaffe.blob import Blob
from scaffe.devices.ahead import Ahead

ROWS, SHAPE, COUNT = 3, (2, 4), 40


class Top:
    """A blob on the device, of which the net keeps what it holds when its turn comes."""

    def __init__(self, device):
        self.device, self.array, self.shape = device, None, None

    def reshape(self, *shape):
        if shape != self.shape:
            self.shape, self.array = shape, self.device.empty(shape, np.dtype(np.float32))


class Step:
    """In a kernel's place: what it reads and writes is read and written when its turn comes."""

    def __init__(self, device, made):
        self.device, self.made = device, made

    def __call__(self, transform):
        self.made.append(transform)
        return self.run

    def run(self, images, places, out):
        def work():
            out.values[...] = images.values + places.values[:, :1, None]

        self.device.put(self.device.current(), work)


def setting(seed, make=None):
    device, uses = FakeDevice(seed), []
    gpu = SimpleNamespace(device=device, use=lambda: uses.append(1))
    return device, Ahead(gpu, make and make(device))


def fill(number, batch):
    """Fill a batch with numbers of its own; each third one with images that are still to be transformed."""
    batch.number, batch.is_raw = number, batch.raw is not None and number % 3 > 0
    if batch.is_raw:
        batch.raw.images[...], batch.raw.places[...] = number % 100, 1000 * number
    else:
        batch.data[...] = number
    batch.label[...] = -number


def expected(number, raw):
    return number % 100 + 1000 * number if raw and number % 3 else number


def population(ahead, count, raw):
    batches = allocate(count, ROWS, [SHAPE, ()], ahead)
    for batch in batches if raw else []:
        images = batch.data.reshape(-1).view(np.uint8)[: 3 * 8].reshape(ROWS, *SHAPE)
        places = ahead.pinned(ROWS * 12).view(np.int32).reshape(ROWS, 3)
        batch.raw = Raw(images, places, SimpleNamespace(output_shape=lambda shape: shape))
    return ahead.add(batches)


def computed(device, ahead, taken):
    """Return what a net would have computed with, in each iteration, of batches in their order."""
    tops, found = [Top(device), Top(device)], []

    def keep():
        found.append([top.array.values.copy() for top in tops])

    for batch in taken:
        ahead.give(batch, tops)
        device.put(device.current(), keep)
    while len(found) < COUNT:
        device.tick()
    return found


def in_one_thread(ahead, batches):
    """Yield full batches, each again as soon as the net was given it: no thread's speed decides what is late."""
    run = ahead.filling(fill)
    for number, batch in zip(range(COUNT), itertools.cycle(batches)):
        run(number, batch)
        yield batch


def wrong(found, raw):
    return [
        number
        for number, (data, label) in enumerate(found)
        if not (np.all(data == expected(number, raw)) and np.all(label == -number))
    ]


@pytest.mark.parametrize("raw", [False, True], ids=["finished", "raw"])
@pytest.mark.parametrize("count", [1, 2, 4])
def test_the_net_gets_each_batch_as_it_was_filled(count, raw):
    for seed in range(10):
        device, ahead = setting(seed, (lambda device: Step(device, [])) if raw else None)
        found = computed(device, ahead, in_one_thread(ahead, population(ahead, count, raw)))
        assert wrong(found, raw) == []


@pytest.mark.parametrize("threads", [1, 3])
def test_reader_threads_send_what_they_fill(threads):
    device, ahead = setting(threads, lambda device: Step(device, []))
    batches = population(ahead, 4, raw=True)

    def taken(queue):
        for _ in range(COUNT):
            batch = queue.get()
            yield batch
            queue.recycle(batch)

    with BatchQueue(ahead.filling(fill), itertools.count(), batches, threads) as queue:
        assert wrong(computed(device, ahead, taken(queue)), raw=True) == []


def forget_the_filled_copy(monkeypatch):
    monkeypatch.setattr(Ahead, "wait", lambda self, batch: None)


def forget_what_is_on_its_way(monkeypatch):
    give = Ahead.give

    def hasty(self, batch, tops):
        monkeypatch.setattr(self.device.current(), "wait_event", lambda event: None, raising=False)
        give(self, batch, tops)

    monkeypatch.setattr(Ahead, "give", hasty)


def forget_the_net(monkeypatch):
    send = Ahead.send

    def hasty(self, batch):
        monkeypatch.setattr(self.stream, "wait_event", lambda event: None, raising=False)
        send(self, batch)

    monkeypatch.setattr(Ahead, "send", hasty)


@pytest.mark.parametrize("forget", [forget_the_filled_copy, forget_what_is_on_its_way, forget_the_net])
def test_each_wait_is_needed(monkeypatch, forget):
    forget(monkeypatch)
    mistakes = 0
    for seed in range(10):
        device, ahead = setting(seed)
        mistakes += len(wrong(computed(device, ahead, in_one_thread(ahead, population(ahead, 2, False))), False))
    assert mistakes


def test_memory_is_taken_once(monkeypatch):
    device, ahead = setting(0, lambda device: Step(device, []))
    batches, run, tops = population(ahead, 2, raw=True), ahead.filling(fill), [Top(device), Top(device)]
    taken = []
    for number in range(12):
        if number == 6:
            for name in ("empty", "zeros", "pinned", "event", "stream"):
                monkeypatch.setattr(device, name, lambda *_, name=name, **__: taken.append(name))
        run(number, batches[number % 2])
        ahead.give(batches[number % 2], tops)
    assert taken == []


def test_a_transform_is_prepared_once():
    made = []
    device, ahead = setting(0, lambda device: Step(device, made))
    first, second = (SimpleNamespace(output_shape=lambda shape: shape) for _ in range(2))
    [batch] = population(ahead, 1, raw=True)
    for number, transform in enumerate([first, first, second, second], 1):
        batch.raw.transform = transform
        ahead.filling(lambda number, batch: fill(1, batch))(number, batch)
        ahead.give(batch, [Top(device), Top(device)])
    assert made == [first, second]


def test_images_of_any_size_make_the_twin_grow():
    device, ahead = setting(3)
    batch, found = Batch(np.zeros((1, 1), np.float32), np.zeros(1, np.float32)), []
    ahead.add([batch])
    for size in (1, 5, 3, 70, 2):
        ahead.wait(batch)
        batch.arrays[0] = np.full((1, size), size, np.float32)
        ahead.send(batch)
        tops = [Top(device), Top(device)]
        ahead.give(batch, tops)
        device.put(device.current(), lambda top=tops[0]: found.append(top.array.values.tolist()))
    while len(found) < 5:
        device.tick()
    assert found == [[[float(size)] * size] for size in (1, 5, 3, 70, 2)]


def test_raw_images_take_no_more_of_the_device_than_they_are():
    device, ahead = setting(0, lambda device: Step(device, []))
    before = len(device.maps)
    population(ahead, 1, raw=True)
    taken = [memory.nbytes for memory, _ in device.maps[before:]]
    assert taken == [ROWS * 8, ROWS * 4, ROWS * 12]


@pytest.mark.parametrize("threads", [1, 3])
def test_large_batches_reach_the_device_whole(threads):
    gpu = a_gpu()
    size = 1 << (10 if type(gpu).__name__ == "StrictGpu" else 20)
    ahead, tops, found = Ahead(gpu), [Blob(xp=gpu.xp), Blob(xp=gpu.xp)], []
    batches = ahead.add(allocate(3, 16, [(size,), ()], ahead))
    with BatchQueue(ahead.filling(fill), itertools.count(), batches, threads) as queue:
        for _ in range(COUNT):
            batch = queue.get()
            ahead.give(batch, tops)
            queue.recycle(batch)
            found.append([values for top in tops for values in (top.array.min(), top.array.max())])
    ahead.close()
    assert [[int(value) for value in row] for row in found] == [[n, n, -n, -n] for n in range(COUNT)]


def test_memory_of_the_device_is_taken_for_the_stream_that_copies(monkeypatch):
    device, ahead = setting(0)
    streams, empty = [], device.empty
    monkeypatch.setattr(device, "empty", lambda *shape, stream=None: streams.append(shape[2]) or empty(*shape))
    [batch] = population(ahead, 1, raw=False)
    batch.arrays[0] = np.zeros((ROWS, 9, 9), np.float32)
    ahead.send(batch)
    assert streams == [ahead.stream] * 3


def test_what_the_net_still_reads_is_kept():
    device, ahead = setting(6)
    [batch] = population(ahead, 1, raw=False)
    ahead.filling(fill)(1, batch)
    ahead.give(batch, [Top(device), Top(device)])
    ahead.close()
    assert not device.current().work


def test_pinned_memory_is_kept_until_it_has_been_copied():
    device, ahead = setting(4)
    [batch] = population(ahead, 1, raw=False)
    ahead.filling(fill)(1, batch)
    assert device.done == 0
    ahead.close()
    assert device.streams[-1] is ahead.stream and isinstance(ahead.stream, FakeStream) and not ahead.stream.work


def test_a_lost_device_does_not_keep_a_layer_from_closing():
    device, ahead = setting(5)
    [batch] = population(ahead, 1, raw=False)
    ahead.filling(fill)(1, batch)

    def lost():
        raise RuntimeError("cudaErrorDeviceUnavailable")

    device.tick = lost
    ahead.close()


def test_a_thread_that_fills_takes_the_gpu_before_it_waits_or_sends():
    _, ahead = setting(0)
    steps = []
    ahead.gpu = SimpleNamespace(device=ahead.device, use=lambda: steps.append("use"))
    ahead.wait = lambda batch: steps.append("wait")
    ahead.send = lambda batch: steps.append("send")
    (batch,) = population(ahead, 1, raw=False)
    ahead.filling(lambda number, batch: steps.append("fill"))(0, batch)
    assert steps == ["use", "wait", "fill", "send"]
