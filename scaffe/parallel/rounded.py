"""RoundedParameters: what is broadcast in place of the parameters where weights travel in bfloat16."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from itertools import accumulate, pairwise

import numpy as np

from collectives.codecs import Bfloat16Codec
from scaffe.blobs.packed import ALIGNMENT, PackedParameters, aligned_zeros
from scaffe.net.net import Net
from scaffe.parallel.buckets import Bucket

WORD = 4  # bytes: a float32 number, or two of bfloat16
LINE = ALIGNMENT // WORD


class RoundedParameters:
    """The parameters in one flat buffer, in their order: those in `rounded` in bfloat16, the others in float32.

    The root writes a range of them by `pack`. The other ranks, which have received it, replace the parameters by
    `unpack`: they are then the root's, rounded. `words` is the buffer to be sent, in elements of 4 bytes.
    """

    def __init__(self, packed: PackedParameters, rounded: Collection[int]):
        self.packed, self._codec = packed, Bfloat16Codec()
        self._order = sorted(range(len(packed.parameters)), key=lambda i: packed.slices[i].start)
        self._each = [2 if i in rounded else 1 for i in range(len(packed.parameters))]  # elements in a word
        self._starts, end = [0] * len(self._order), 0
        for i in self._order:
            self._starts[i] = end
            end += -(-packed.parameters[i].blob.count // self._each[i] // LINE) * LINE
        self._buffer = aligned_zeros(end)
        self.words = self._buffer.view(np.int32)

    @classmethod
    def of(cls, net: Net) -> RoundedParameters | None:
        """Return those of a net, whose layers round the weights that they multiply; None on a GPU."""
        return cls(net.packed, rounded_parameters(net)) if net.engine.in_host_memory else None

    def part(self, part: slice) -> slice:
        """Return the range of the buffer that holds a range of the packed parameters, which cuts them at lines."""
        inside = self._inside(part)
        (first, start, _), (last, _, stop) = inside[0], inside[-1]
        return slice(self._word(first, start), self._word(last, stop))

    def bucket(self, bucket: Bucket) -> Bucket:
        """Return a bucket with the range of the buffer that holds it, and the words of each rank's slice."""
        part, end = self.part(bucket.part), bucket.part.stop
        starts = accumulate(bucket.counts, initial=bucket.part.start)
        words = [self.part(slice(start, end)).start if start < end else part.stop for start in starts]
        return replace(bucket, part=part, counts=tuple(b - a for a, b in pairwise(words)) if bucket.counts else ())

    def pack(self, part: slice) -> None:
        """Write a range of the parameters into the buffer."""
        for i, start, stop in self._inside(part):
            values, words = self.packed.flat[start:stop], self._buffer[self._word(i, start) : self._word(i, stop)]
            if self._each[i] == 2:
                self._codec.encode(values, _message(words, values))
            else:
                words[...] = values

    def unpack(self, part: slice) -> None:
        """Replace a range of the parameters by those in the buffer."""
        for i, start, stop in self._inside(part):
            values, words = self.packed.flat[start:stop], self._buffer[self._word(i, start) : self._word(i, stop)]
            if self._each[i] == 2:
                self._codec.decode(_message(words, values), values)
            else:
                values[...] = words

    def _inside(self, part: slice) -> list[tuple[int, int, int]]:
        """Return the parameters that have elements in a range, each with the range of these."""
        first, end, _ = part.indices(self.packed.flat.size)
        slices = [(i, self.packed.slices[i]) for i in self._order]
        found = [(i, max(one.start, first), min(one.stop, end)) for i, one in slices]
        return [(i, start, stop) for i, start, stop in found if start < stop]

    def _word(self, i: int, element: int) -> int:
        """Return the word of the buffer with an element of parameter i, counted as in the packed parameters.

        Only the end of the last element can lie within a word; the next word is returned.
        """
        return self._starts[i] + -(-(element - int(self.packed.slices[i].start)) // self._each[i])


def _message(words: np.ndarray, values: np.ndarray) -> np.ndarray:
    """Return the bytes of the buffer that hold these values in bfloat16."""
    return words.view(np.uint8)[: 2 * values.size]


def rounded_parameters(net: Net) -> set[int]:
    """Return the indices of the parameters that all their layers read rounded to bfloat16."""
    read = {id(layer.blobs[k]) for layer in net.layers for k in layer.rounded_blobs}
    return {i for i, one in enumerate(net.packed.parameters) if all(id(blob) in read for blob in one.blobs)}
