"""How commands run: tools on the first rank alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from PIL import Image

from scaffe.cli import main

NET = 'layer { name: "in" type: "Input" top: "x" input_param { shape { dim: 1 dim: 2 } } }'
TOOLS = {
    "upgrade-net net.prototxt OUT": ("OUT",),
    "draw-net net.prototxt OUT.dot": ("OUT.dot",),
    "convert-imageset . list OUT": ("OUT",),
}


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("command", TOOLS)
def test_tools_work_on_the_first_rank_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, rank: int
) -> None:
    monkeypatch.chdir(tmp_path)
    for launcher in ("PMI_RANK", "PMIX_RANK", "SLURM_PROCID"):
        monkeypatch.delenv(launcher, raising=False)
    monkeypatch.setenv("OMPI_COMM_WORLD_RANK", str(rank))
    Path("net.prototxt").write_text(NET)
    Image.new("RGB", (2, 2)).save("0.png")
    Path("list").write_text("0.png 0\n")
    assert main(command.split()) == 0
    assert all(Path(name).exists() == (rank == 0) for name in TOOLS[command])
