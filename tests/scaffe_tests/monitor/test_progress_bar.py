"""The progress bar: on a terminal alone, below the log's lines."""

from __future__ import annotations

import io
import re
import sys

import pytest

from scaffe.monitor.log import log
from scaffe.monitor.progress import progress


class Terminal(io.StringIO):
    """What a terminal would be given."""

    def isatty(self) -> bool:
        return True


def written(monkeypatch: pytest.MonkeyPatch, stderr: io.StringIO, shown: bool) -> str:
    """Return what 3 iterations and a line of the log write."""
    monkeypatch.setattr(sys, "stderr", stderr)
    with progress(2, 5, shown) as show:
        show(3)
        log.info("a line")
        show(5)
    return stderr.getvalue()


def test_a_terminal_gets_a_bar_below_the_logs_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    text = written(monkeypatch, Terminal(), True)
    assert "| 2/5 [" in text and "| 5/5 [" in text
    assert re.search(r"\rI\d{4} .* a line\n\r", text)


@pytest.mark.parametrize(("stderr", "shown"), [(io.StringIO, True), (Terminal, False)])
def test_others_get_the_line_alone(monkeypatch: pytest.MonkeyPatch, stderr: type[io.StringIO], shown: bool) -> None:
    assert re.fullmatch(r"I\d{4} .* a line\n", written(monkeypatch, stderr(), shown))
