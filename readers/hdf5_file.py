"""Checks of HDF5 files: datasets must store their values in the file itself, in chunks of a usual size.

HDF5 can store a dataset's values in other files (external links, external storage, virtual datasets). A file from
elsewhere could so expose any file that its reader may read. Such datasets are refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from readers.errors import ReaderError, SourceError

# What h5py raises for damaged files.
DAMAGED = (OSError, LookupError, ValueError, RuntimeError, TypeError, AttributeError, ArithmeticError, MemoryError)
CHUNK_BYTES = 16 << 20  # the limit of a chunk that is larger than its dataset
HOPS = 16  # the most soft links on the path to one item


def hdf5_library() -> Any:
    """Return the module h5py. Raises ReaderError, which names the extra to install, where it is missing."""
    try:
        import h5py
    except ImportError:
        raise ReaderError("HDF5 files need h5py, which is not installed: pip install 'scaffe[hdf5]'") from None
    return h5py


def find(file: Any, path: str) -> Any:
    """Return the group or dataset at `path`, None where there is none.

    Follows soft links. Raises SourceError for a link into another file, and for more than HOPS soft links.
    """
    h5py = hdf5_library()
    here, parts, hops = file, path.split("/"), 0
    while parts:
        if not (name := parts.pop(0)):
            continue
        link = here.get(name, getlink=True) if isinstance(here, h5py.Group) else None
        if link is None:
            return None
        if isinstance(link, h5py.SoftLink):
            hops += 1
            if hops > HOPS:
                raise SourceError(f"'{path}' is behind more than {HOPS} soft links")
            here = file if link.path.startswith("/") else here
            parts = [*link.path.split("/"), *parts]
        else:
            _check_hard(link, path)
            here = here[name]
    return here


def is_group(item: Any) -> bool:
    """Return whether an item of a file is a group."""
    return isinstance(item, hdf5_library().Group)


def walk(group: Any, prefix: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, Any]]:
    """Yield the path below `group` and the item of each dataset and each empty group.

    Raises SourceError for a soft or external link, and for a group that two links lead to.
    """
    h5py = hdf5_library()
    seen = set() if seen is None else seen
    seen.add(h5py.h5o.get_info(group.id).addr)
    for name in group:
        path = f"{prefix}{name}"
        _check_hard(group.get(name, getlink=True), path)
        item = group[name]
        if not is_group(item) or not len(item):
            yield path, item
        elif h5py.h5o.get_info(item.id).addr in seen:
            raise SourceError(f"two links lead to the group '{path}'")
        else:
            yield from walk(item, f"{path}/", seen)


def _check_hard(link: Any, path: str) -> None:
    if not isinstance(link, hdf5_library().HardLink):
        kind = "a soft link" if isinstance(link, hdf5_library().SoftLink) else "a link into another file"
        raise SourceError(f"'{path}' is {kind}; expected its values in this file")


def check_inside(dataset: Any, path: str) -> None:
    """Check that a dataset stores its values in its own file, in chunks of a usual size.

    Raises SourceError where it does not, ValueError where `dataset` is no dataset.
    """
    if not isinstance(dataset, hdf5_library().Dataset):
        raise ValueError(f"expected a dataset '{path}', got {'none' if dataset is None else 'something else'}")
    if dataset.is_virtual or dataset.external:
        raise SourceError(f"the values of '{path}' lie in another file; expected them in this file")
    chunk = dataset.dtype.itemsize
    for size in dataset.chunks or ():
        chunk *= size
    if dataset.chunks and chunk > max(dataset.nbytes, CHUNK_BYTES):
        raise SourceError(f"'{path}' has chunks of {chunk} bytes, but {dataset.nbytes} bytes in all")


def check_numbers(dataset: Any, path: str) -> None:
    """Check a dataset as check_inside does, and raise SourceError where its values are no real numbers."""
    check_inside(dataset, path)
    if dataset.dtype.kind not in "fiu":
        raise SourceError(f"expected numbers in '{path}', got {dataset.dtype}")
    if dataset.shape is None:
        raise SourceError(f"expected numbers in '{path}', got none")
