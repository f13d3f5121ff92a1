"""The side stream: what is put on it waits for nothing that computes; who joins waits for it, on the device alone."""

import numpy as np
from fake_device import FakeDevice

from scaffe.parallel.side import Host, Side


def test_work_on_the_side_is_not_held_up_by_the_stream_that_computes():
    device = FakeDevice()
    array, never = device.zeros((3,), np.dtype("f4")), device.event()
    never.recorded = 1
    device.current().wait_event(never)  # a layer that takes its time
    with Side(device):
        array.set(np.ones(3))
        assert array.get().tolist() == [1, 1, 1]


def test_whoever_joins_comes_after_it():
    for seed in range(10):
        device = FakeDevice(seed)
        array, side = device.zeros((3,), np.dtype("f4")), Side(device)
        with side:
            array.set(np.ones(3))
        side.join()
        array[:] = 2
        assert array.get().tolist() == [2, 2, 2]
        with side:
            assert array.get().tolist() == [2, 2, 2]


def test_the_host_has_no_streams():
    side = Host()
    with side:
        side.join()
