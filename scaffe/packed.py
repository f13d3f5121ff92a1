"""PackedParameters: all parameters of a net in one flat buffer, all gradients in another.

Each blob is a view that starts on a 64-byte boundary, in layer order, so that a layer, a run of layers or the
whole net is one contiguous message and nothing is ever packed or unpacked.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from scaffe.blob import Blob
from scaffe.errors import NetError, ShapeError
from scaffe.proto import ParamSpec

ALIGNMENT = 64  # bytes
_STEP = ALIGNMENT // 4  # elements of float32


@dataclass
class Parameter:
    """A learnable blob: whose it is, how it learns, and the blobs of other layers that share it by `name`."""

    layer: str
    index: int
    blob: Blob
    name: str = ""
    lr_mult: float | None = None  # None where the prototxt says nothing: 1
    decay_mult: float | None = None
    permissive: bool = False  # may share with a blob of another shape of equal count
    sharers: list[Blob] = field(default_factory=list)

    @classmethod
    def from_spec(cls, layer: str, index: int, blob: Blob, spec: ParamSpec | None) -> Parameter:
        """Return the parameter of a layer's blob, as the prototxt's `param` describes it, if it does."""
        parameter = cls(layer, index, blob)
        if spec is not None:
            parameter.name, parameter.permissive = spec.name, spec.share_mode == ParamSpec.PERMISSIVE
            parameter.lr_mult = spec.lr_mult if spec.HasField("lr_mult") else None
            parameter.decay_mult = spec.decay_mult if spec.HasField("decay_mult") else None
        return parameter

    def join(self, parameters: list[Parameter]) -> Parameter:
        """Add this to `parameters`, or to the sharers of the one that has its name; return the owner.

        Raise ShapeError or NetError where the two disagree on shape or multipliers.
        """
        owner = next((p for p in parameters if p.name and p.name == self.name), None)
        if owner is None:
            parameters.append(self)
            return self
        if owner.blob.count != self.blob.count or not (self.permissive or owner.blob.shape == self.blob.shape):
            raise ShapeError(
                f"shared parameter '{owner.name}': {owner.label} has shape {owner.blob.shape}, "
                f"{self.label} {self.blob.shape}"
            )
        owner.lr_mult = self._agreed("lr_mult", owner)
        owner.decay_mult = self._agreed("decay_mult", owner)
        owner.sharers.append(self.blob)
        return owner

    def _agreed(self, kind: str, owner: Parameter) -> float | None:
        ours, theirs = getattr(self, kind), getattr(owner, kind)
        if None not in (ours, theirs) and ours != theirs:
            raise NetError(
                f"shared parameter '{owner.name}': {kind} is {theirs:g} in {owner.label} and {ours:g} in {self.label}"
            )
        return ours if theirs is None else theirs

    @property
    def label(self) -> str:
        """What messages call it: ip1[0]."""
        return f"{self.layer}[{self.index}]"

    @property
    def rate(self) -> float:
        return 1.0 if self.lr_mult is None else self.lr_mult

    @property
    def decay(self) -> float:
        return 1.0 if self.decay_mult is None else self.decay_mult


def aligned_zeros(count: int) -> np.ndarray:
    """Return `count` float32 zeros that start on a 64-byte boundary."""
    raw = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + count * 4].view(np.float32)


class PackedParameters:
    """Move the parameters' values and gradients into `data` and `diff`, flat float32 arrays of equal length.

    `allocate(count)` gives an array of `count` zeros: plain memory, a shared window, a device. `slices[i]`
    is where parameter i stands in both.
    """

    def __init__(self, parameters: Sequence[Parameter], allocate: Callable = aligned_zeros):
        self.parameters = list(parameters)
        self.slices: list[slice] = []
        end = 0
        for parameter in self.parameters:
            self.slices.append(slice(end, end + parameter.blob.count))
            end += -(-parameter.blob.count // _STEP) * _STEP
        self.data, self.diff = allocate(end), allocate(end)
        for parameter, part in zip(self.parameters, self.slices, strict=True):
            self._adopt(parameter, part)

    def _adopt(self, parameter: Parameter, part: slice) -> None:
        data, diff = self.data[part], self.diff[part]
        data[...] = parameter.blob.array.reshape(-1)
        for blob in (parameter.blob, *parameter.sharers):
            blob.array = data.reshape(blob.shape)
            blob.diff_array = diff.reshape(blob.shape)

    @property
    def nbytes(self) -> int:
        """Size of the values, bytes: that of one message with all of them."""
        return self.data.nbytes

    def view(self, flat, i: int):
        """Return parameter i's part of a flat array, in the parameter's shape."""
        return flat[self.slices[i]].reshape(self.parameters[i].blob.shape)
