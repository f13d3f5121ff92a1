"""Annotated pictures: lists with VOC annotations, and databases of AnnotatedDatums as SSD's Caffe writes them."""

import io

import numpy as np
import pytest
from boxed_pictures import annotation
from PIL import Image

from readers import RecordError, SourceError, encode, write_lmdb
from readers.annotated import open_annotated, read_label_map
from readers.datum_pb2 import AnnotatedDatum, Datum

LABELS = 'item { name: "none" label: 0 } item { name: "cat" label: 3 } item { name: "dog" label: 5 }'
BOXES = [("cat", 2, 1, 10, 8), ("dog", 0, 0, 20, 10), ("cat", 5, 5, 6, 6)]
EXPECTED = [[3, 0, 0.1, 0.1, 0.5, 0.8, 0], [5, 0, 0, 0, 1, 1, 0], [3, 1, 0.25, 0.5, 0.3, 0.6, 0]]


@pytest.fixture
def folder(tmp_path):
    pixels = np.arange(600, dtype=np.uint8).reshape(10, 20, 3)
    Image.fromarray(pixels).save(tmp_path / "a.png")
    (tmp_path / "a.xml").write_text(annotation(BOXES, 20, 10))
    (tmp_path / "labels.prototxt").write_text(LABELS)
    (tmp_path / "list.txt").write_text("a.png a.xml\n\na.png a.xml\n")
    return tmp_path


def opened(folder):
    return open_annotated(str(folder / "list.txt"), str(folder / "labels.prototxt"))


def test_a_list_gives_pictures_and_relative_boxes(folder):
    source = opened(folder)
    assert len(source) == 2
    [(name, value)] = source.read([1])
    record = source.decode(value)
    assert record.image.shape == (3, 10, 20)
    np.testing.assert_array_equal(record.image[::-1].transpose(1, 2, 0), np.asarray(Image.open(folder / "a.png")))
    np.testing.assert_allclose(record.boxes, EXPECTED, rtol=1e-6)
    assert source.describe(name) == f"picture {folder}/a.png ({folder}/list.txt:3)"


def test_difficult_boxes_are_marked(folder):
    text = annotation(BOXES, 20, 10).replace("<difficult>0<", "<difficult>1<", 1)
    (folder / "a.xml").write_text(text)
    [(_, value)] = opened(folder).read([0])
    np.testing.assert_array_equal(opened(folder).decode(value).boxes[:, 6], [1, 0, 0])


def record(box=(0.1, 0.2, 0.3, 0.4), encoded=False):
    image = np.arange(24, dtype=np.uint8).reshape(3, 2, 4)
    datum = Datum.FromString(encode(image, 0))
    if encoded:
        content = io.BytesIO()
        Image.fromarray(image[::-1].transpose(1, 2, 0)).save(content, "PNG")
        datum = Datum(data=content.getvalue(), encoded=True, label=-1)
    given = AnnotatedDatum(datum=datum, type=AnnotatedDatum.BBOX)
    one = given.annotation_group.add(group_label=4).annotation.add(instance_id=2)
    for name, value in zip(("xmin", "ymin", "xmax", "ymax"), box, strict=True):
        setattr(one.bbox, name, value)
    one.bbox.difficult = True
    return given.SerializeToString()


@pytest.mark.parametrize("encoded", [False, True])
def test_a_database_gives_pictures_and_boxes(tmp_path, encoded):
    write_lmdb(str(tmp_path / "db"), [(b"%08d" % i, record(encoded=encoded)) for i in range(3)])
    source = open_annotated(str(tmp_path / "db"))
    assert len(source) == 3
    [(name, value)] = source.read([2])
    found = source.decode(value)
    np.testing.assert_array_equal(found.image, np.arange(24).reshape(3, 2, 4))
    np.testing.assert_allclose(found.boxes, [[4, 2, 0.1, 0.2, 0.3, 0.4, 1]], rtol=1e-6)
    assert "record '00000002'" in source.describe(name)


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (encode(np.zeros((1, 2, 2), np.uint8), 0), "no AnnotatedDatum"),
        (b"\xff\xff", "no AnnotatedDatum"),
        (record((0.1, 0.2, 1.3, 0.4)), r"\(0.1, 0.2\) to \(1.3, 0.4\) .* outside the picture"),
        (record((0.1, 0.2, 0.1, 0.4)), "outside the picture or empty"),
        (record((float("nan"), 0.2, 0.1, 0.4)), "outside the picture"),
    ],
)
def test_wrong_records_of_a_database_are_refused(tmp_path, value, said):
    write_lmdb(str(tmp_path / "db"), [(b"0", value)])
    source = open_annotated(str(tmp_path / "db"))
    [(_, read)] = source.read([0])
    with pytest.raises(RecordError, match=said):
        source.decode(read)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("item { name: 'a' } item { name: 'a' }", "different names, got 2 with 1"),
        ("", "got 0"),
        ("item {", "Expected"),
        ("item { name: '\xe9' }", "not a prototxt in UTF-8"),
    ],
)
def test_wrong_label_maps_are_refused(tmp_path, content, said):
    (tmp_path / "labels").write_text(content, "latin-1")
    with pytest.raises(SourceError, match=f"label map .*labels: .*{said}"):
        read_label_map(str(tmp_path / "labels"))
    with pytest.raises(SourceError, match="label map .*none: no such file"):
        read_label_map(str(tmp_path / "none"))


@pytest.mark.parametrize("encoding", ["gbk", "utf-32", "of-nobody"])
def test_an_annotation_in_an_encoding_that_xml_lacks_is_refused(folder, encoding):
    path = folder / "a.xml"
    path.write_text(f"<?xml version='1.0' encoding='{encoding}'?>" + path.read_text())
    source = opened(folder)
    [(_, value)] = source.read([0])
    with pytest.raises(RecordError, match=r"annotation .*a.xml: is no XML \(.*encoding"):
        source.decode(value)
