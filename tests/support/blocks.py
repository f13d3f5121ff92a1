"""Blocks: those of code of docs/, and how tests run them."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
# test_installed.py trains as the quickstart says; here commands do their work on a tenth of it.
SHORTER = {
    "_iter_400.": "_iter_40.", "--ranks 160 --cluster cluster-a": "--ranks 16 --cluster cluster-a",
    '"googlenet", 160': '"googlenet", 16', "--net googlenet --ranks 100000": "--net lenet --ranks 100000",
    'build("googlenet", 64)': 'build("lenet", 64)', "solver.step(300)": "solver.step(30)",
    "reduce -m 4:65536 --algorithm": "reduce -m 4:65536 -i 30 --algorithm",
}  # fmt: skip


def run(language: str, block: str, folder: Path, **more: str) -> None:
    """Run a block in `folder`, each line of a shell block to its success; `more` is of its environment."""
    for old, new in SHORTER.items():
        block = block.replace(old, new)
    command = ["bash", "-euo", "pipefail", "-c", block] if language == "sh" else [sys.executable, "-c", block]
    env = os.environ | {"PYTHONPATH": str(ROOT), "MPLBACKEND": "Agg"} | more
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, f"{block}\n{done.stdout[-2000:]}{done.stderr[-4000:]}"
