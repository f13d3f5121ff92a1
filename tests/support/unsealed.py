"""Weights and states without our checksums, as Caffe writes them: for tests that change what is in them.

Of a file with a seal a change is noticed before anything else is looked at.
"""

from __future__ import annotations

from pathlib import Path

from scaffe.proto import NetParameter, SolverState


def unseal(path: str | Path) -> Path:
    """Take the checksums out of a .caffemodel, .solverstate, or one in HDF5; return its path."""
    path = Path(path)
    if path.suffix == ".h5":
        _unseal_hdf5(path)
        return path
    message = (NetParameter if ".caffemodel" in path.name else SolverState).FromString(path.read_bytes())
    message.ClearField("sealed")
    message.ClearField("checksum")
    for blob in message.history if isinstance(message, SolverState) else [b for x in message.layer for b in x.blobs]:
        blob.ClearField("checksum")
    path.write_bytes(message.SerializeToString())
    return path


def _unseal_hdf5(path: Path) -> None:
    import h5py

    with h5py.File(path, "a") as file:  # what is behind HDF5's own end is cut off
        del file.attrs["sealed"]
        checked: list[h5py.Dataset] = []
        file.visititems(lambda _, item: checked.append(item) if "checksum" in item.attrs else None)
        for dataset in checked:
            del dataset.attrs["checksum"]
