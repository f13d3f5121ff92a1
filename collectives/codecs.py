"""Codecs: in which numbers float32 elements travel. Sums are float32 all the way; messages alone are shorter.

- `bf16`, `float16`: rounded to nearest, ties to even: half the bytes. In float16 values above 65504 are inf.
- `int8`: blocks of BLOCK elements with one scale each: a quarter of the bytes.

With `+feedback` after the name a rank keeps what rounding its contributions and partial sums has lost, for each
message, and adds it the next time (error feedback, Seide et al. 2014). Sums that are spread are rounded once, on the
rank that has them first, so that all ranks get the same numbers: what was decoded is encoded to the same bytes again.
For int8 that holds where messages are cut in the same places, as those of `blockwise` schedules are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from collectives.errors import ArgumentError
from collectives.execution.transport import HostTransport
from collectives.schedules.schedule import OUT

if TYPE_CHECKING:
    from mpi4py import MPI

BLOCK = 256  # elements of int8 with one scale
IN_CACHE = 1 << 14  # elements that several passes go over
TINY = np.finfo(np.float32).tiny  # scales below it are 0: numbers over them would fit no byte
FEEDBACK = "+feedback"


class Codec(ABC):
    """How elements are written as bytes of a message."""

    @abstractmethod
    def nbytes(self, count: int) -> int:
        """Return the bytes of so many elements."""

    @abstractmethod
    def encode(self, values: np.ndarray, message: np.ndarray) -> None:
        """Write float32 values into a message's bytes."""

    @abstractmethod
    def decode(self, message: np.ndarray, values: np.ndarray) -> None:
        """Write a message's numbers into float32 values."""


class Bfloat16Codec(Codec):
    """The upper halves of float32 numbers."""

    def nbytes(self, count: int) -> int:
        """Return two bytes for each."""
        return 2 * count

    def encode(self, values: np.ndarray, message: np.ndarray) -> None:
        """Round to nearest, ties to even. A NaN stays one."""
        bits, words = values.view(np.uint32), message.view(np.uint16)
        sums = np.empty(min(values.size, IN_CACHE), np.uint32)
        for at in range(0, values.size, IN_CACHE):
            part, word = bits[at : at + IN_CACHE], words[at : at + IN_CACHE]
            rounded = np.right_shift(part, 16, out=sums[: part.size])
            rounded &= 1
            rounded += 0x7FFF
            rounded += part
            rounded >>= 16
            np.copyto(word, rounded, casting="unsafe")
            if (wrong := np.isnan(values[at : at + IN_CACHE])).any():
                word[wrong] = 0x7FC0

    def decode(self, message: np.ndarray, values: np.ndarray) -> None:
        """Append zeros."""
        np.left_shift(message.view(np.uint16), np.uint32(16), out=values.view(np.uint32), dtype=np.uint32)


class Float16Codec(Codec):
    """float16."""

    def nbytes(self, count: int) -> int:
        """Return two bytes for each."""
        return 2 * count

    def encode(self, values: np.ndarray, message: np.ndarray) -> None:
        """Round as NumPy does."""
        with np.errstate(over="ignore"):
            np.copyto(message.view(np.float16), values, casting="same_kind")

    def decode(self, message: np.ndarray, values: np.ndarray) -> None:
        """Convert back."""
        np.copyto(values, message.view(np.float16))


class Int8Codec(Codec):
    """Scales, one float32 for each block, then a byte for each element."""

    def nbytes(self, count: int) -> int:
        """Return a byte for each, and four for each block."""
        return count + 4 * -(-count // BLOCK)

    def encode(self, values: np.ndarray, message: np.ndarray) -> None:
        """Divide each block by its largest magnitude over 127, and round. One value that is not finite makes it NaN."""
        scales, whole = self._parts(message, values.size)
        magnitudes = np.abs(values)
        np.maximum.reduceat(magnitudes, np.arange(0, values.size, BLOCK), out=scales)
        scales /= 127
        scales[~np.isfinite(scales)] = np.nan
        scales[scales < TINY] = 0
        each = np.repeat(np.where(scales > 0, scales, 1), BLOCK)[: values.size]
        with np.errstate(invalid="ignore"):
            np.copyto(whole, np.nan_to_num(np.rint(values / each)), casting="unsafe")

    def decode(self, message: np.ndarray, values: np.ndarray) -> None:
        """Multiply by the scales."""
        scales, whole = self._parts(message, values.size)
        np.multiply(whole, np.repeat(scales, BLOCK)[: values.size], out=values)

    def _parts(self, message: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the scales and the bytes of a message."""
        end = len(message) - count
        return message[:end].view(np.float32), message[end:].view(np.int8)


CODECS: dict[str, Callable[[], Codec]] = {"bf16": Bfloat16Codec, "float16": Float16Codec, "int8": Int8Codec}
NUMBERS = ("", *CODECS, *(name + FEEDBACK for name in CODECS))


def check_numbers(numbers: Any, dtype: np.dtype) -> str:
    """Return the name of a codec. Raise ArgumentError for an unknown one, and for elements that are no float32."""
    if not isinstance(numbers, str) or numbers not in NUMBERS:
        given = f"'{numbers}'" if isinstance(numbers, str) else type(numbers).__name__
        raise ArgumentError(f"unknown numbers {given:.60}; known are {', '.join(filter(None, NUMBERS))}")
    if numbers and dtype != np.float32:
        raise ArgumentError(f"numbers '{numbers}' are for arrays of float32, got {dtype}")
    return numbers


def depends_on_cuts(numbers: str) -> bool:
    """Return whether an element's number depends on those beside it in the message."""
    return numbers.removesuffix(FEEDBACK) == "int8"


class CodedMessage:
    """A message's elements and its bytes."""

    def __init__(self, codec: Codec, elements: np.ndarray, keeps: bool, spreads: bool):
        self.elements, self.bytes = elements, np.empty(codec.nbytes(elements.size), np.uint8)
        self.lost = np.zeros(elements.size, np.float32) if keeps else None  # by rounding, so far
        self.spreads = spreads  # whether this rank takes the rounded numbers too

    def give_lost(self, to: np.ndarray) -> None:
        """Add what rounding has lost so far to the elements of another array, and keep it no longer."""
        if self.lost is not None:
            to += self.lost
            self.lost[...] = 0


class CodecTransport(HostTransport):
    """Host memory whose messages a codec writes. `spreads`: sums are spread, so their first rank rounds them too."""

    place = OUT  # of the next message's elements

    def __init__(self, numbers: str, spreads: bool):
        self.codec, self._keeps, self._spreads = CODECS[numbers.removesuffix(FEEDBACK)](), FEEDBACK in numbers, spreads

    def message(self, view: np.ndarray, sent: bool) -> Any:
        """Return the elements with room for their bytes."""
        spreads = sent and self._spreads and self.place == OUT
        return CodedMessage(self.codec, view, sent and self._keeps and not spreads, spreads)

    def send(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int, synchronous: bool) -> MPI.Request:
        """Write the bytes, and send them."""
        codec, values = self.codec, message.elements
        if message.lost is not None:
            message.lost += values
            codec.encode(message.lost, message.bytes)
            arrived = np.empty_like(message.lost)
            codec.decode(message.bytes, arrived)
            message.lost -= arrived
        else:
            codec.encode(values, message.bytes)
        if message.spreads:
            codec.decode(message.bytes, values)
        return comm.Issend(message.bytes, peer, tag) if synchronous else comm.Isend(message.bytes, peer, tag)

    def receive(self, comm: MPI.Intracomm, message: Any, peer: int, tag: int) -> MPI.Request:
        """Post the receive of the bytes."""
        return comm.Irecv(message.bytes, peer, tag)

    def land(self, message: Any) -> None:
        """Read the bytes."""
        self.codec.decode(message.bytes, message.elements)
