"""PackedParameters: all parameters of a net in one flat buffer, all their gradients in another.

Each blob is a view that starts on a 64-byte boundary, in layer order. A layer, consecutive layers or the whole net is
then one contiguous message; nothing is copied to pack it. Statistics, which are measured, not learned, have no
gradient messages; they follow the learned parameters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from scaffe.blob import Blob, on_host
from scaffe.errors import NetError, ShapeError
from scaffe.proto import ParamSpec

ALIGNMENT = 64  # bytes
_STEP = ALIGNMENT // 4  # elements of float32


class Forms(Protocol):
    """Forms that engines have made of parameters: a SharedForms."""

    def changed(self, values: Any) -> None:
        """Note that a range of the values was overwritten."""

    def expose(self) -> None:
        """Note that values can be written without notice from now on."""


@dataclass
class ParameterBlob:
    """A parameter or statistic of a layer: its multipliers, and other layers' blobs that share it by `name`."""

    layer: str
    index: int
    blob: Blob
    name: str = ""
    lr_mult: float | None = None  # None, if the prototxt does not set it, counts as 1
    decay_mult: float | None = None
    permissive: bool = False  # may be shared with a blob of another shape and equal count
    statistic: bool = False  # measured, so without a gradient
    sharers: list[Blob] = field(default_factory=list)

    @classmethod
    def from_spec(
        cls, layer: str, index: int, blob: Blob, spec: ParamSpec | None, statistic: bool = False
    ) -> ParameterBlob:
        """Return the parameter of blob `index` of a layer, with the settings of the prototxt's `param`, if any.

        A statistic has lr_mult 0. Raise NetError if the prototxt sets another value.
        """
        parameter = cls(layer, index, blob, statistic=statistic)
        if spec is not None:
            parameter.name, parameter.permissive = spec.name, spec.share_mode == ParamSpec.PERMISSIVE
            parameter.lr_mult = spec.lr_mult if spec.HasField("lr_mult") else None
            parameter.decay_mult = spec.decay_mult if spec.HasField("decay_mult") else None
        if statistic:
            if parameter.lr_mult:
                raise NetError(
                    f"layer '{layer}': blob {index} is measured, not learned, but has lr_mult {parameter.lr_mult:g}; "
                    "leave lr_mult out, or set it to 0"
                )
            parameter.lr_mult = 0.0
        return parameter

    def join(self, parameters: list[ParameterBlob]) -> ParameterBlob:
        """Append this to `parameters`, or to the sharers of the parameter with the same name; return the owner.

        Raise ShapeError or NetError if the two have different shapes or multipliers.
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

    def _agreed(self, kind: str, owner: ParameterBlob) -> float | None:
        ours: float | None = getattr(self, kind)
        theirs: float | None = getattr(owner, kind)
        if None not in (ours, theirs) and ours != theirs:
            raise NetError(
                f"shared parameter '{owner.name}': {kind} is {theirs:g} in {owner.label} and {ours:g} in {self.label}"
            )
        return ours if theirs is None else theirs

    @property
    def blobs(self) -> list[Blob]:
        """The blob and its sharers, which have the same values."""
        return [self.blob, *self.sharers]

    @property
    def label(self) -> str:
        """The name in messages, such as ip1[0]."""
        return f"{self.layer}[{self.index}]"

    @property
    def rate(self) -> float:
        """The multiplier of the learning rate."""
        return 1.0 if self.lr_mult is None else self.lr_mult

    @property
    def decay(self) -> float:
        """The multiplier of the weight decay."""
        return 1.0 if self.decay_mult is None else self.decay_mult


def aligned_zeros(count: int) -> np.ndarray:
    """Return `count` float32 zeros, aligned to 64 bytes."""
    raw = np.zeros(count * 4 + ALIGNMENT, np.uint8)
    offset = -raw.ctypes.data % ALIGNMENT
    return raw[offset : offset + count * 4].view(np.float32)


class PackedParameters:
    """Move the parameters' values and gradients into `data` and `diff`, flat float32 arrays of equal length.

    `allocate(count)` returns an array of `count` zeros: host memory, an MPI shared-memory window or device memory.
    `slices[i]` is the range of parameter i in both arrays, `learned` the range of all learned parameters,
    `statistics` that of all statistics. What writes values in training calls `changed`, so that engines' `forms` of
    them are made anew.
    """

    forms: Forms | None = None

    def __init__(self, parameters: Sequence[ParameterBlob], allocate: Callable[[int], Any] = aligned_zeros):
        self.parameters = list(parameters)
        self.slices = [slice(0)] * len(self.parameters)
        self.learned = self._place(0, statistics=False)
        self.statistics = self._place(self.learned.stop, statistics=True)
        end = self.statistics.stop
        self._data, self._diff = allocate(end), allocate(end)
        self._own, self._is_flat = self._data, True
        self.pinned = False  # whether a solver's rule or messages hold views of the arrays, so that they must not move
        self.cleared = 0  # how often the gradients were set to zero
        self._on_host = isinstance(self._data, np.ndarray)
        self.is_blank = all(parameter.blob.values.empty for parameter in self.parameters)  # nothing has a value yet
        for parameter, part in zip(self.parameters, self.slices, strict=True):
            if not parameter.blob.values.empty:
                self._data[part] = parameter.blob.array.reshape(-1)
            self._adopt(parameter, part)

    def move(self, allocate: Callable[[int], Any], gradients: bool = True) -> tuple[Any, Any]:
        """Move to new memory; return the old arrays, values and gradients. Views of the old arrays are not updated.

        Without `gradients` these are zeros from now on.
        """
        values, diff = self.flat, self.diff if gradients else self._diff
        self._data, self._diff = allocate(values.size), allocate(values.size)
        if not self.is_blank:  # else pages would be touched for nothing
            self._data[...] = values
            if gradients:
                self._diff[...] = diff
        self._own = self._data
        for parameter, part in self._parts():
            self._adopt(parameter, part)
        return values, diff

    def lie_in(self, other: PackedParameters, views: Sequence[tuple[Blob, Blob]]) -> None:
        """Record that blobs of this net are views of another net's blobs, given as pairs (mine, the other's).

        The flat array is then the other net's. If only some blobs are views, or their order differs, there is no flat
        array, and `data` raises an error.
        """
        if not views:
            return
        theirs = {id(blob): part for parameter, part in other._parts() for blob in parameter.blobs}
        seen = {id(mine): theirs.get(id(blob)) for mine, blob in views}
        mine = [(blob, part) for parameter, part in self._parts() for blob in parameter.blobs]
        same = self._data.size == other._data.size and all(seen.get(id(blob)) == part for blob, part in mine)
        self._is_flat = same and other._is_flat
        if self._is_flat:
            self._data, self._own = other._data, None

    def owns(self, blob: Blob) -> bool:
        """Return whether a parameter's values lie in memory of this net, not of another net."""
        return not self._on_host or self._own is not None and np.may_share_memory(blob.values.array, self._own)

    def _parts(self) -> Iterator[tuple[ParameterBlob, slice]]:
        return zip(self.parameters, self.slices, strict=True)

    def _place(self, start: int, statistics: bool) -> slice:
        """Set the slices of the learned parameters or of the statistics, from `start` on; return their whole range."""
        end = start
        for i, parameter in enumerate(self.parameters):
            if parameter.statistic == statistics:
                self.slices[i] = slice(end, end + parameter.blob.count)
                end += -(-parameter.blob.count // _STEP) * _STEP
        return slice(start, end)

    def _adopt(self, parameter: ParameterBlob, part: slice) -> None:
        data, diff = self._data[part], self._diff[part]
        for blob in parameter.blobs:
            if not self._on_host and blob is not parameter.blob and blob.shape == parameter.blob.shape:
                blob.values, blob.diff_values = parameter.blob.values, parameter.blob.diff_values  # copies on the host
            blob.array = data.reshape(blob.shape)
            blob.diff_array = diff.reshape(blob.shape)
            blob.values.exposed = False

    @property
    def flat(self) -> Any:
        """The values as `data` returns them, for what calls `changed` after writing."""
        if not self._is_flat:
            raise NetError(
                "the net shares some of its parameters with another net, so that they lie in no one array; "
                "take them from net.params"
            )
        if not self._on_host:
            self.settle_values()
        return self._data

    @property
    def data(self) -> Any:
        """The values, flat. Who keeps the array can write it without notice, so that no form of the values lasts.

        On a device, what was written into host copies is copied to the device first. Raise NetError if the values are
        not in one array.
        """
        self.expose()
        self.is_blank = False
        return self.flat

    @data.setter
    def data(self, values: Any) -> None:
        """Copy values from an array where the layers compute; also the end of `data *= 2`."""
        if values is not self._data:
            self._data[...] = values
        self.is_blank = False
        self.changed(slice(None))

    def changed(self, part: slice) -> None:
        """Note that the values in this range were overwritten."""
        if self.forms is not None:
            self.forms.changed(self._data[part])

    def expose(self) -> None:
        """Note that values can be written without notice from now on."""
        if self.forms is not None:
            self.forms.expose()

    def host_data(self) -> np.ndarray:
        """Return the values on the host."""
        return on_host(self.data)

    def set_data(self, values: np.ndarray) -> None:
        """Copy values from a host array, such as that of `host_data`."""
        self.data = self.xp.asarray(values)

    @property
    def xp(self) -> Any:
        """The array library of the values: numpy or CuPy."""
        return self.parameters[0].blob.xp if self.parameters else np

    def settle_values(self) -> None:
        """Copy values that users wrote into host copies to the flat array."""
        for parameter in self.parameters:
            for blob in parameter.blobs:
                blob.values.settle()

    @property
    def diff(self) -> Any:
        """The gradients, flat. Deferred ones, such as the zeros of `clear_diffs`, are written first."""
        for i in range(len(self.parameters)):
            self.settle(i)
        return self._diff

    def diff_of(self, part: slice) -> Any:
        """Return a view of a range of the gradients, and write no deferred ones; see `settle`.

        Unlike `diff` it may be called while another thread computes gradients.
        """
        return self._diff[part]

    def clear_diffs(self) -> None:
        """Set all gradients to zero; deferred, since a layer's first addition can overwrite the memory instead."""
        self.cleared += 1
        for parameter, part in zip(self.parameters, self.slices, strict=True):
            if parameter.sharers:  # several blobs: only the first addition may overwrite
                for blob in parameter.blobs:
                    blob.diff_values.settle()
                self._diff[part] = 0
            else:
                parameter.blob.diff_values.clear()

    def settle(self, i: int) -> None:
        """Write the gradient of parameter i into the flat array, if it is deferred."""
        self.parameters[i].blob.diff_values.settle()

    @property
    def nbytes(self) -> int:
        """Size of the values, bytes: the size of a message with all parameters."""
        return int(self._data.nbytes)

    def view(self, flat: Any, i: int) -> Any:
        """Return parameter i's part of a flat array, in the parameter's shape."""
        return flat[self.slices[i]].reshape(self.parameters[i].blob.shape)
