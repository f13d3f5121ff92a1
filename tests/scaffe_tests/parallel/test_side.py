"""The side stream: work queued on it waits for no computation; after a join, computation waits for it on the device."""

import numpy as np
from fake_device import FakeDevice

from scaffe.parallel.side import NoStream, SideStream


def test_work_on_the_side_is_not_held_up_by_the_stream_that_computes():
    device = FakeDevice()
    array, never = device.zeros((3,), np.dtype("f4")), device.event()
    never.recorded = 1
    device.current().wait_event(never)  # a layer that takes its time
    with SideStream(device):
        array.set(np.ones(3))
        assert array.get().tolist() == [1, 1, 1]


def test_work_queued_after_a_join_waits_for_it():
    for seed in range(10):
        device = FakeDevice(seed)
        array, side = device.zeros((3,), np.dtype("f4")), SideStream(device)
        with side:
            array.set(np.ones(3))
        side.join()
        array[:] = 2
        assert array.get().tolist() == [2, 2, 2]
        with side:
            assert array.get().tolist() == [2, 2, 2]


def test_the_host_has_no_streams():
    side = NoStream()
    with side:
        side.join()
