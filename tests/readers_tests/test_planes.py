"""Planes of windows, against plain slices."""

from __future__ import annotations

from threading import Thread

import numpy as np
import pytest

from readers.planes import _words, planes

PIXELS = np.random.RandomState(0).randint(0, 256, (7, 9, 4)).astype(np.uint8)
CHANNELS = PIXELS.transpose(2, 0, 1)
CUT = np.s_[2:6, 1:8]


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(
    ("image", "whole_pixels"),
    [
        (CHANNELS[2::-1], True),
        (CHANNELS[:3], True),
        (CHANNELS[3:0:-1], True),
        (CHANNELS, True),
        (CHANNELS[[2, 1, 0, 3]], False),
        (CHANNELS[::2], False),
        (CHANNELS[:3, 1:], False),
        (CHANNELS[:3, :, ::-1], False),
        (np.ascontiguousarray(CHANNELS), False),
        (CHANNELS.astype(np.float32) / 3, False),
        (np.concatenate([[0], PIXELS.ravel()]).astype(np.uint8)[1:].reshape(7, 9, 4).transpose(2, 0, 1), False),
    ],
)
def test_planes_are_the_slices_of_an_image_however_it_lies_in_memory(image, whole_pixels, step):
    assert (_words(image) is not None) == whole_pixels
    cut = (CUT[0], slice(1, min(8, image.shape[2])))
    np.testing.assert_array_equal(planes(image, cut, step), image[:, cut[0], cut[1]][:, :, ::step])


def test_planes_are_not_those_of_another_thread():
    mine = planes(CHANNELS, CUT)
    thread = Thread(target=planes, args=((255 - PIXELS).transpose(2, 0, 1), CUT))
    thread.start()
    thread.join()
    np.testing.assert_array_equal(mine, CHANNELS[:, CUT[0], CUT[1]])
