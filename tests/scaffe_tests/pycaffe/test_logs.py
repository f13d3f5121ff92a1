"""init_log and log: lines in glog's format on stderr, from a level on."""

from __future__ import annotations

import os
import re
import subprocess
import sys

import pytest

PROGRAM = """
import os
import caffe
{}
caffe.log("two lines\\nof mine")
from scaffe.monitor.log import log
log.warning("a warning")
log.error("an error")
"""
GLOG = re.compile(r"([IWE])\d{4} \d\d:\d\d:\d\d\.\d{6} +\d+ (\S+):(\d+)\] (.*)")


def logged(tmp_path, init, **environment):
    """Return a match for each line that the program logs."""
    (tmp_path / "program.py").write_text(PROGRAM.format(init))
    command = [sys.executable, "-m", "scaffe.pycaffe", "program.py"]
    ran = subprocess.run(
        command, cwd=tmp_path, env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return [GLOG.fullmatch(line) for line in ran.stderr.splitlines()]


def test_a_line_has_glogs_format_and_the_place_in_the_program(tmp_path):
    first, second, *_ = logged(tmp_path, "")
    assert first.groups() == ("I", "program.py", "5", "two lines")
    assert second.groups() == ("I", "program.py", "5", "of mine")


@pytest.mark.parametrize(
    ("init", "environment", "levels"),
    [
        ("", {}, "IIWE"),
        ("caffe.init_log()", {"GLOG_minloglevel": "2"}, "IIWE"),
        ("caffe.init_log(1)", {}, "WE"),
        ("", {"GLOG_minloglevel": "2", "GLOG_logtostderr": "1"}, "E"),
        ("os.environ['GLOG_minloglevel'] = '3'", {}, ""),
        ("", {"GLOG_minloglevel": "none"}, "IIWE"),
        ("caffe.init_log()", {"OMPI_COMM_WORLD_RANK": "1"}, "WE"),
    ],
)
def test_the_level_is_that_of_init_log_or_of_the_environment(tmp_path, init, environment, levels):
    assert "".join(line[1] for line in logged(tmp_path, init, **environment)) == levels
