"""BatchNorm by kernels: two launches each way, the running sums kept by the first way's second."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from scaffe.engines.cuda.engine import THREADS, divisor
from scaffe.layers.batch_norm import BatchNorm
from scaffe.layers.layer import Blobs, register

CHUNK = 32 * THREADS  # elements of a block, as batch_norm.cu says


class CudaBatchNorm(BatchNorm):
    """BatchNorm; the reference form where a channel has too many elements for a kernel's int."""

    @property
    def _count(self) -> int:
        """Elements of a channel."""
        return self.view[0] * self.view[2]

    @property
    def _has_kernel(self) -> bool:
        return 0 < self._count < 2**31 - CHUNK

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        if not self._has_kernel:
            return super().forward(bottom, top)
        x, count = bottom[0].array, self._count
        kept = self.normalised = self.buffer(
            "normalised", self.view, x.dtype
        )  # layers above may change the top in place
        if self.use_sums:
            mean, variance = self.global_statistics()
            self.deviation = self.xp.sqrt(variance + self.eps)[:, None]
            return self._launch("normalise_by", x, mean, self.deviation, kept, top[0].array)
        self.deviation = self.buffer("deviation", (self.view[1], 1), x.dtype)
        chunks, sums = self._of_chunks(x.dtype), [blob.array for blob in self.blobs]
        numbers = float(self.eps), float(self.fraction), count / max(1, count - 1)
        self._launch("norm_chunks", x, *chunks)
        self._launch("normalise", x, *chunks, self.deviation, kept, top[0].array, *sums, numbers=numbers)

    def backward(self, top: Blobs, propagate_down: Sequence[bool], bottom: Blobs) -> None:
        if self.use_sums or not propagate_down[0] or not self._has_kernel:
            return super().backward(top, propagate_down, bottom)
        arrays, chunks = (self.normalised, top[0].diff_array), self._of_chunks(self.normalised.dtype)
        self._launch("norm_back_chunks", *arrays, *chunks)
        self._launch("normalise_back", *arrays, *chunks, self.deviation, bottom[0].diff_array)

    def _of_chunks(self, dtype: Any) -> list[Any]:
        """Return room for two numbers of each block."""
        return [self.buffer(name, (self._blocks,), dtype) for name in ("chunks", "chunks too")]

    @property
    def _blocks(self) -> int:
        return self.view[1] * -(-self._count // CHUNK)

    def _launch(self, kernel: str, *arrays: Any, numbers: tuple[float, ...] = ()) -> None:
        _, channels, inner = self.view
        of_part = channels, inner, self._count, self._blocks // channels, divisor(inner)
        self.context.engine.launch("batch_norm", kernel, (self._blocks,), *arrays, *of_part, *numbers)


register("BatchNorm", CudaBatchNorm, engine="cuda")
