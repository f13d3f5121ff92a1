"""PyTorch's DataLoader with Pillow's decoder and one worker, for reading.py: loader.py FILE, a pickled list of JPEGs.

Needs torch and Pillow. Each line on stdin starts a turn, which prints its images per second.
"""

from __future__ import annotations

import io
import pickle
import sys
import time

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset

CROP = 227


class Images(Dataset):
    """JPEGs, decoded, cropped, mirrored, with the mean subtracted: float32 (3 x 227 x 227)."""

    def __init__(self, contents: list[bytes], repeats: int):
        self.contents, self.repeats = contents, repeats
        self.mean = torch.full((3, 256, 256), 117.0)

    def __len__(self) -> int:
        return len(self.contents) * self.repeats

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        pixels = np.array(Image.open(io.BytesIO(self.contents[index % len(self.contents)])))
        top, left, flip = (int(torch.randint(n, ())) for n in (30, 30, 2))
        window = np.s_[:, top : top + CROP, left : left + CROP]
        image = torch.from_numpy(pixels).permute(2, 0, 1)[window].float() - self.mean[window]
        return image.flip(2) if flip else image, index % 10


def turn(loader: DataLoader) -> float:
    """Return images per second, without the start of the worker."""
    batches = iter(loader)
    next(batches)
    begin, count = time.perf_counter(), 0
    for data, _ in batches:
        count += len(data)
    return count / (time.perf_counter() - begin)


def main() -> None:
    """Measure a turn for each line on stdin."""
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        raise SystemExit("usage: loader.py FILE")
    torch.set_num_threads(1)
    with open(sys.argv[1], "rb") as file:
        loader = DataLoader(Images(pickle.load(file), 8), batch_size=32, num_workers=1)
    for _ in sys.stdin:
        print(turn(loader), flush=True)


if __name__ == "__main__":
    main()
