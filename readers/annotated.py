"""Annotated pictures: a database of AnnotatedDatums, or a list of pictures and their VOC annotations."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple
from xml.etree import ElementTree

import numpy as np

from readers.database import open_database
from readers.datum_pb2 import AnnotatedDatum, LabelMap
from readers.errors import RecordError, SourceError, reason
from readers.files import read_input
from readers.image import decode_image
from readers.image_reader import under

BOX = 7  # numbers of a box: label, instance, xmin, ymin, xmax, ymax, difficult
CORNERS = ("xmin", "ymin", "xmax", "ymax")


class Annotated(NamedTuple):
    """A picture (C x H x W, uint8) and its boxes (n x 7), whose corners are relative to the picture's sides."""

    image: np.ndarray
    boxes: np.ndarray


class AnnotatedSource:
    """Annotated pictures by index. One thread at a time reads; several may decode."""

    def __len__(self) -> int:
        raise NotImplementedError

    def read(self, indices: Iterable[int]) -> list[tuple[Any, Any]]:
        """Return the (key, value) of each index."""
        raise NotImplementedError

    def decode(self, value: Any) -> Annotated:
        """Return a value's picture and boxes. Raises RecordError for a damaged picture or a wrong box."""
        raise NotImplementedError

    def describe(self, key: Any) -> str:
        """Return a record's name for messages."""
        raise NotImplementedError


def open_annotated(source: str, label_map: str = "") -> AnnotatedSource:
    """Return the annotated pictures of a database (a folder) or a list (a file).

    A line of a list has a picture and its annotation in VOC's XML, both relative to the list's folder; `label_map` is a
    file that has a label for the name of each class. Raises SourceError where one can't be read.
    """
    if os.path.isfile(source):
        return AnnotatedList(source, read_label_map(label_map))
    return AnnotatedDatabase(source)


def read_label_map(path: str) -> dict[str, int]:
    """Return the labels of a label map, by name. Raises SourceError where it can't be read or has a name twice."""
    from google.protobuf import text_format

    if not path:
        raise SourceError("a list of pictures and annotations needs annotated_data_param { label_map_file: }")
    try:
        items = text_format.Parse(read_input(path).decode("utf-8-sig"), LabelMap()).item
    except OSError as error:
        raise SourceError(f"label map {path}: {reason(error)}") from None
    except UnicodeDecodeError:
        raise SourceError(f"label map {path}: not a prototxt in UTF-8") from None
    except text_format.ParseError as error:
        raise SourceError(f"label map {path}: {' '.join(str(error).replace('scaffe.', '').split())}") from None
    labels = {item.name: item.label for item in items}
    if len(labels) < len(items) or not labels:
        raise SourceError(f"label map {path}: expected items with different names, got {len(items)} with {len(labels)}")
    return labels


class AnnotatedDatabase(AnnotatedSource):
    """The AnnotatedDatums of a database, as SSD's convert_annoset writes them."""

    def __init__(self, source: str):
        self._reader = open_database(source)

    def __len__(self) -> int:
        return len(self._reader)

    def read(self, indices: Iterable[int]) -> list[tuple[Any, Any]]:
        """Return the (key, value) of each index."""
        return list(self._reader.read(indices))

    def decode(self, value: bytes) -> Annotated:
        """Return a record's picture and boxes. Raises RecordError for a damaged record or a wrong box."""
        from google.protobuf.message import DecodeError

        try:
            record = AnnotatedDatum.FromString(value)
        except DecodeError:
            raise RecordError("is no AnnotatedDatum") from None
        if not record.HasField("datum") or not record.HasField("type"):
            raise RecordError("is no AnnotatedDatum with boxes; a database of Datums is for a Data layer")
        image, _ = self._reader.decode(record.datum.SerializeToString(), None)
        boxes = [
            (group.group_label, one.instance_id, *(getattr(one.bbox, side) for side in CORNERS), one.bbox.difficult)
            for group in record.annotation_group
            for one in group.annotation
        ]
        return Annotated(image, checked(np.array(boxes, np.float32).reshape(-1, BOX)))

    def describe(self, key: Any) -> str:
        """Return a record's name for messages: the database and the key."""
        return self._reader.describe(key)


class AnnotatedList(AnnotatedSource):
    """The pictures and VOC annotations of a list."""

    def __init__(self, source: str, labels: Mapping[str, int]):
        self.source, self.labels = source, labels
        try:
            lines = read_input(source).decode(errors="surrogateescape").splitlines()
        except OSError as error:
            raise SourceError(f"{source}: {reason(error)}") from None
        self._items = [(number, line.split()) for number, line in enumerate(lines, 1) if line.strip()]
        for number, words in self._items:
            if len(words) != 2:
                raise SourceError(f"{source}:{number}: expected 'PICTURE ANNOTATION', got '{' '.join(words)}'")
        if not self._items:
            raise SourceError(f"{source}: expected lines of 'PICTURE ANNOTATION', got none")

    def __len__(self) -> int:
        return len(self._items)

    def read(self, indices: Iterable[int]) -> list[tuple[int, tuple[int, bytes, bytes]]]:
        """Return (index, (index, picture, annotation)). Raises RecordError for a file that can't be read."""
        return [(index, (index, self._content(index, 0), self._content(index, 1))) for index in indices]

    def _path(self, index: int, file: int) -> str:
        return under(os.path.dirname(self.source), self._items[index][1][file])

    def _content(self, index: int, file: int) -> bytes:
        try:
            return read_input(self._path(index, file))
        except (OSError, ValueError) as error:
            what = ("picture", "annotation")[file]
            said = f"{self.source}:{self._items[index][0]}: {what} {self._path(index, file)}: {reason(error)}"
            raise RecordError(said) from None

    def decode(self, value: tuple[int, bytes, bytes]) -> Annotated:
        """Return the picture and its boxes. Raises RecordError for a damaged picture or a wrong annotation."""
        index, picture, annotation = value
        image = decode_image(picture, color=True)
        try:
            return Annotated(image, self._boxes(annotation, image.shape[1:]))
        except RecordError as error:
            raise RecordError(f"annotation {self._path(index, 1)}: {error}") from None

    def _boxes(self, annotation: bytes, size: tuple[int, ...]) -> np.ndarray:
        """Return an annotation's boxes (n x 7) of a picture of `size`, height and width."""
        try:
            root = ElementTree.fromstring(annotation)
        except (ElementTree.ParseError, LookupError, ValueError) as error:  # the last two of its encoding
            raise RecordError(f"is no XML ({error})") from None
        height, width = (_number(root, f"size/{side}") for side in ("height", "width"))
        if (height, width) != size:
            raise RecordError(f"is of a picture of {width:g} x {height:g}, but the picture is {size[1]} x {size[0]}")
        boxes, seen = [], dict.fromkeys(self.labels.values(), 0)
        for one in root.findall("object"):
            name = (one.findtext("name") or "").strip()
            if name not in self.labels:
                raise RecordError(f"has a box of class '{name}', which the label map lacks")
            label = self.labels[name]
            corners = [_number(one, f"bndbox/{side}") for side in CORNERS]
            relative = [corner / side for corner, side in zip(corners, (width, height) * 2, strict=True)]
            boxes.append((label, seen[label], *relative, float((one.findtext("difficult") or "0").strip() == "1")))
            seen[label] += 1
        return checked(np.array(boxes, np.float32).reshape(-1, BOX))

    def describe(self, key: int) -> str:
        """Return a picture's name for messages: its file, and LIST:LINE where it is named."""
        return f"picture {self._path(key, 0)} ({self.source}:{self._items[key][0]})"


def checked(boxes: np.ndarray) -> np.ndarray:
    """Return boxes (n x 7). Raises RecordError for one that is outside the picture or has no area."""
    for _, _, xmin, ymin, xmax, ymax, _ in boxes:
        if not (0 <= xmin < xmax <= 1 and 0 <= ymin < ymax <= 1):
            raise RecordError(
                f"has a box ({xmin:.4g}, {ymin:.4g}) to ({xmax:.4g}, {ymax:.4g}) of the picture's sides, which is "
                "outside the picture or empty"
            )
    return boxes


def _number(node: ElementTree.Element, path: str) -> float:
    text = (node.findtext(path) or "").strip()
    try:
        return float(text)
    except ValueError:
        raise RecordError(f"has '{text}' as {path}, expected a number") from None
