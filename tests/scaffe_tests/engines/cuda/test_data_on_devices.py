"""Data layers on a GPU have the bits that they have on the host, whether it transforms the images or the host does."""

import io

import numpy as np
import pytest
from google.protobuf import text_format
from over_ranks import assert_same, run
from PIL import Image
from strict_arrays import a_gpu

from readers import Reading, encode, write_lmdb, write_mean
from scaffe import engines
from scaffe.compute import Compute
from scaffe.context import TRAIN, Context
from scaffe.net.net import Net
from scaffe.proto import NetParameter

COUNT, SHAPE = 23, (3, 12, 10)
PIXELS = [np.random.RandomState(n).randint(0, 256, SHAPE, np.uint8) for n in range(COUNT)]
TRANSFORMS = {
    "plain": "",
    "values": "crop_size: 9 mirror: true mean_value: 104 mean_value: 117.5 mean_value: 123 scale: 0.017",
    "image": 'crop_size: 9 mirror: true mean_file: "{folder}/mean" scale: 0.00390625',
    "small crop": "crop_size: 3 mirror: true mean_value: 100",
}


def file_of(image, kind="PNG"):
    file = io.BytesIO()
    Image.fromarray(image.transpose(1, 2, 0)).save(file, kind)
    return file.getvalue()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Databases of the same images, raw, encoded, of two sizes and with bad records; files of them; a mean image."""
    folder = tmp_path_factory.mktemp("devices")
    larger = np.random.RandomState(0).randint(0, 256, (3, 14, 13), np.uint8)
    databases = {
        "raw": [encode(image, n) for n, image in enumerate(PIXELS)],
        "encoded": [encode(file_of(image, "JPEG"), n) for n, image in enumerate(PIXELS)],
        "sizes": [encode(file_of(larger if n in (4, 12) else image), n) for n, image in enumerate(PIXELS)],
        "bad": [encode(image, n) if n != 9 else b"\xff" for n, image in enumerate(PIXELS)],
    }
    for name, values in databases.items():
        write_lmdb(folder / name, [(b"%08d" % n, value) for n, value in enumerate(values)])
    for n, image in enumerate(PIXELS):
        (folder / f"{n}.png").write_bytes(file_of(image))
    (folder / "list").write_text("".join(f"{n}.png {n}\n" for n in range(COUNT)))
    write_mean(folder / "mean", np.random.RandomState(1).normal(110, 30, SHAPE).astype(np.float32))
    windows = "".join(f"# {n}\n{n}.png\n3 12 10\n2\n1 1 0 0 8 9\n0 0 1 1 9 9\n" for n in range(COUNT))
    (folder / "windows").write_text(windows)
    return folder


def data(source, transform=""):
    return f"""layer {{ name: "d" type: "Data" top: "data" top: "label" transform_param {{ {transform} }}
        data_param {{ source: "{source}" batch_size: 5 backend: LMDB }} }}"""


def net_of(text, engine, **context):
    """Return a net on the GPU, by the kernels or the reference forms, or on the host."""
    param = text_format.Parse(text, NetParameter())
    gpu = None if engine == "host" else a_gpu()
    name = "auto" if engine == "cuda" else "reference"
    how = {"phase": TRAIN, "seed": 3, "compute": Compute(name), **context}
    return Net(param, context=Context(**how), engine=engines.create(how["compute"], gpu))


def assert_alike(text, engine, passes=7, before=lambda net: None, **context):
    """Fail unless a GPU has the host's bits; return the GPU's first layer, which is closed."""
    nets = [net_of(text, one, **context) for one in (engine, "host")]
    found = []
    for net in nets:
        before(net)
        found.append(run(net, passes))
    layer = nets[0].layers[0]
    raw = getattr(layer, "batch", None) is not None and layer.batch.is_raw
    for net in nets:
        net.close()
    assert_same(*found)
    return raw


@pytest.mark.parametrize("engine", ["cuda", "reference"])
@pytest.mark.parametrize("source", ["raw", "encoded"])
@pytest.mark.parametrize("transform", TRANSFORMS)
def test_data_has_the_hosts_bits(folder, engine, source, transform):
    text = data(folder / source, TRANSFORMS[transform].format(folder=folder))
    raw = assert_alike(text, engine)
    assert raw == (engine == "cuda" and transform != "small crop")


def test_several_threads_read_and_send(folder):
    reading = Reading(threads=3, prefetch=5, shuffle="full")
    text = data(folder / "raw", TRANSFORMS["image"].format(folder=folder))
    assert assert_alike(text, "cuda", passes=15, reading=reading)


def test_batches_with_images_of_other_sizes_are_cut_on_the_host(folder):
    transform = "crop_size: 9 mirror: true mean_value: 9"
    assert assert_alike(data(folder / "sizes", transform), "cuda", passes=5)  # the fifth batch has none of these
    assert not assert_alike(data(folder / "sizes", transform), "cuda", passes=3)


def test_synthetic_images_are_transformed_on_the_device():
    assert assert_alike(data("synthetic:20x3x12x10:4", TRANSFORMS["values"]), "cuda")


def test_skipped_records_are_the_hosts(folder):
    reading = Reading(bad_records="skip", max_bad_records=0.2)
    assert assert_alike(data(folder / "bad", TRANSFORMS["values"]), "cuda", reading=reading)


@pytest.mark.parametrize("engine", ["cuda", "reference"])
def test_image_data_has_the_hosts_bits(folder, engine):
    text = f"""layer {{ name: "d" type: "ImageData" top: "data" top: "label"
        transform_param {{ {TRANSFORMS["values"]} }}
        image_data_param {{ source: "{folder}/list" root_folder: "{folder}/" batch_size: 4 shuffle: true }} }}"""
    assert assert_alike(text, engine) == (engine == "cuda")


def test_a_top_for_the_images_alone_will_do(folder):
    assert assert_alike(data(folder / "raw", TRANSFORMS["values"]).replace('top: "label"', ""), "cuda")


def test_windows_have_the_hosts_bits(folder):
    text = f"""layer {{ name: "d" type: "WindowData" top: "data" top: "label"
        transform_param {{ crop_size: 7 mirror: true }}
        window_data_param {{ source: "{folder}/windows" root_folder: "{folder}/" batch_size: 6 }} }}"""
    assert_alike(text, "cuda")


def test_rows_of_hdf5_files_have_the_hosts_bits(folder):
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "rows.h5", "w") as file:
        file["data"], file["pair"] = np.stack(PIXELS).astype(np.float32), np.arange(2.0 * COUNT).reshape(COUNT, 2)
        file["number"] = np.arange(COUNT)
    (folder / "hdf5").write_text(f"{folder}/rows.h5\n")
    text = f"""layer {{ name: "d" type: "HDF5Data" top: "data" top: "pair" top: "number"
        hdf5_data_param {{ source: "{folder}/hdf5" batch_size: 4 shuffle: true }} }}"""
    assert_alike(text, "cuda")


def test_rows_of_arrays_in_memory_have_the_hosts_bits():
    text = """layer { name: "d" type: "MemoryData" top: "data" top: "label"
        memory_data_param { batch_size: 4 channels: 3 height: 12 width: 10 } }"""
    pixels, numbers = np.stack(PIXELS)[:20].astype(np.float32), np.arange(20)
    assert_alike(text, "cuda", passes=9, before=lambda net: net.set_input_arrays(pixels, numbers))


def test_a_layer_goes_on_where_another_stood(folder):
    text = data(folder / "raw", TRANSFORMS["values"])

    def before(net):
        run(net, 2)
        net.layers[0].seek(11)

    assert assert_alike(text, "cuda", before=before)


def test_images_that_grow_one_by_one_reach_the_device(folder, tmp_path):
    values = [encode(np.full((3, 4 + n, 5 + n % 3), n, np.uint8), n) for n in range(7)]
    write_lmdb(tmp_path / "db", [(b"%02d" % n, value) for n, value in enumerate(values)])
    assert_alike(data(tmp_path / "db").replace("batch_size: 5", "batch_size: 1"), "cuda", passes=16)


def test_the_tops_stay_where_they_are_on_the_device(folder):
    net = net_of(data(folder / "raw", TRANSFORMS["values"]), "cuda")
    places = set()
    for _ in range(6):
        net.forward()
        places.add(tuple(blob.array.__cuda_array_interface__["data"][0] for blob in net.blobs.values()))
    net.close()
    assert len(places) == 1
