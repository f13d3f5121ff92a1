"""A line that several instances of a rank log, for example on how a layer computes, is in the log once."""

from __future__ import annotations

import logging
import threading

import pytest

from scaffe.monitor.log import log

pytestmark = pytest.mark.mpi_skip


def say(thread: str, text: str, *given: object) -> None:
    """Log a line in a thread of this name."""
    one = threading.Thread(target=log.warning, args=(text, *given), name=thread)
    one.start()
    one.join()


def test_a_line_of_all_instances_is_logged_once_and_other_threads_lines_always(caplog) -> None:
    with caplog.at_level(logging.INFO, "scaffe"):
        for instance in (1, 0, 2):
            say(f"instance {instance}", "layer '%s' computes in numpy: a test", "conv1")
        say("instance 0", "layer 'conv2' computes in numpy: a test")
        say("instance 1", "layer '%s' computes in numpy: a test", "conv1")  # of a second net
        for thread in ("MainThread", "stall", "reader"):
            say(thread, "said by many threads")
    texts = [entry.getMessage() for entry in caplog.records]
    assert texts == ["layer 'conv1' computes in numpy: a test", "layer 'conv2' computes in numpy: a test",
                     "layer 'conv1' computes in numpy: a test", *["said by many threads"] * 3]  # fmt: skip
