"""The names and arguments that Caffe documents for pycaffe, listed by hand: all are there and take these arguments."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest

from scaffe import pycaffe

pytestmark = pytest.mark.mpi_skip

# What programs pass, in pycaffe's order and by pycaffe's names; a function may take more.
MODULE = {
    "set_mode_cpu": (),
    "set_mode_gpu": (),
    "set_device": ("0",),
    "set_random_seed": ("1",),
    "set_multiprocess": ("False",),
    "solver_count": (),
    "set_solver_count": ("1",),
    "solver_rank": (),
    "set_solver_rank": ("0",),
    "has_nccl": (),
    "layer_type_list": (),
    "init_log": ("0",),
    "log": ("text",),
    "get_solver": ("file",),
    "to_proto": ("top", "another"),
}
CLASSES = (
    "Net Blob Layer NetSpec Classifier Detector Timer NCCL SGDSolver NesterovSolver AdaGradSolver RMSPropSolver "
    "AdaDeltaSolver AdamSolver"
)
METHODS = {
    "Net": {
        "forward": ("blobs=", "start=", "end=", "data="),
        "backward": ("diffs=", "start=", "end=", "loss="),
        "forward_all": ("blobs=", "data="),
        "forward_backward_all": ("blobs=", "diffs=", "data="),
        "_forward": ("0", "1"),
        "_backward": ("1", "0"),
        "_batch": ("blobs",),
        "set_input_arrays": ("data", "labels"),
        "reshape": (),
        "clear_param_diffs": (),
        "copy_from": ("file",),
        "share_with": ("net",),
        "save": ("file",),
        "save_hdf5": ("file",),
        "load_hdf5": ("file",),
        "before_forward": ("function",),
        "after_forward": ("function",),
        "before_backward": ("function",),
        "after_backward": ("function",),
        "_bottom_ids": ("0",),
        "_top_ids": ("0",),
    },
    "Blob": {"reshape": ("1", "2", "3", "4")},
    "Classifier": {"predict": ("inputs", "oversample=")},
    "Detector": {
        "detect_windows": ("images_windows",),
        "detect_selective_search": ("image_fnames",),
        "crop": ("im", "window"),
        "configure_crop": ("context_pad",),
    },
    "SGDSolver": {
        "step": ("1",),
        "solve": ("file",),
        "restore": ("file",),
        "snapshot": (),
        "apply_update": (),
        "add_callback": ("on_start", "on_gradients_ready"),
    },
    "NetSpec": {"to_proto": ()},
    "Timer": {"start": (), "stop": ()},
    "NCCL": {"new_uid": None, "bcast": (), "broadcast": ()},
}
CONSTRUCTORS = {
    "Net": ("network_file", "1", "level=", "stages=", "weights="),
    "Classifier": (
        "model_file", "pretrained_file", "image_dims=", "mean=", "input_scale=", "raw_scale=", "channel_swap=",
    ),
    "Detector": (
        "model_file", "pretrained_file", "mean=", "input_scale=", "raw_scale=", "channel_swap=", "context_pad=",
    ),
    "SGDSolver": ("file",),
    "NCCL": ("solver", "uid"),
}  # fmt: skip
SUBMODULES = {
    "io": {
        "load_image": ("filename", "color="),
        "resize_image": ("im", "new_dims", "interp_order="),
        "oversample": ("images", "crop_dims"),
        "blobproto_to_array": ("blob", "return_diff="),
        "array_to_blobproto": ("arr", "diff="),
        "arraylist_to_blobprotovector_str": ("arraylist",),
        "blobprotovector_str_to_arraylist": ("text",),
        "array_to_datum": ("arr", "label="),
        "datum_to_array": ("datum",),
    },
    "net_spec": {"to_proto": ("top",), "param_name_dict": (), "assign_proto": ("proto", "name", "value")},
    "coord_map": {
        "coord_map": ("fn",),
        "coord_map_from_to": ("top_from", "top_to"),
        "crop": ("top_from", "top_to"),
        "compose": ("base", "next"),
        "inverse": ("map",),
    },
    "draw": {
        "get_pydot_graph": ("net", "rankdir", "label_edges=", "phase=", "display_lrm="),
        "draw_net": ("net", "rankdir", "ext=", "phase=", "display_lrm="),
        "draw_net_to_file": ("net", "filename", "rankdir=", "phase=", "display_lrm="),
        "get_layer_label": ("layer", "rankdir"),
    },
}
TRANSFORMER = {
    "preprocess": ("data", "image"),
    "deprocess": ("data", "values"),
    "set_transpose": ("data", "order"),
    "set_channel_swap": ("data", "order"),
    "set_raw_scale": ("data", "255"),
    "set_mean": ("data", "mean"),
    "set_input_scale": ("data", "1"),
}
MESSAGES = (
    "NetParameter SolverParameter LayerParameter V1LayerParameter BlobProto BlobProtoVector BlobShape Datum "
    "FillerParameter NetState SolverState TransformationParameter TRAIN TEST"
)


def accepts(function: Any, arguments: tuple[str, ...] | None, bound: int = 0) -> None:
    """Raise TypeError unless a function accepts the arguments, after so many that its class gives."""
    if arguments is None:
        return
    named = {argument[:-1]: None for argument in arguments if argument.endswith("=")}
    placed = [None] * bound + [argument for argument in arguments if not argument.endswith("=")]
    inspect.signature(function).bind(*placed, **named)


@pytest.mark.parametrize("name", MODULE)
def test_functions_of_the_module(name: str) -> None:
    accepts(getattr(pycaffe, name), MODULE[name])


@pytest.mark.parametrize("name", CLASSES.split())
def test_classes_with_their_methods(name: str) -> None:
    found = getattr(pycaffe, name)
    assert inspect.isclass(found)
    accepts(found, CONSTRUCTORS.get(name))
    for method, arguments in METHODS.get(name, {}).items():
        accepts(getattr(found, method), arguments, bound=1)


@pytest.mark.parametrize("module", SUBMODULES)
def test_functions_of_submodules(module: str) -> None:
    for name, arguments in SUBMODULES[module].items():
        accepts(getattr(getattr(pycaffe, module), name), arguments)


def test_the_transformer_and_the_forms_of_a_net_in_python() -> None:
    for name, arguments in TRANSFORMER.items():
        accepts(getattr(pycaffe.io.Transformer, name), arguments, bound=1)
    top = pycaffe.layers.Input(shape=dict(dim=[1]))
    assert isinstance(top, pycaffe.net_spec.Top) and isinstance(top.fn, pycaffe.net_spec.Function)
    assert top.fn.params == {"shape": {"dim": [1]}} and top.n == 0
    assert pycaffe.params.Pooling.MAX == pycaffe.proto.caffe_pb2.PoolingParameter.MAX


def test_messages() -> None:
    for name in MESSAGES.split():
        assert hasattr(pycaffe.proto.caffe_pb2, name), name
    assert pycaffe.io.caffe_pb2 is pycaffe.proto.caffe_pb2


def small_net() -> pycaffe.proto.caffe_pb2.NetParameter:
    n = pycaffe.NetSpec()
    n.data = pycaffe.layers.DummyData(shape=dict(dim=[2, 1, 4, 4]))
    n.ip = pycaffe.layers.InnerProduct(n.data, num_output=2)
    n.loss = pycaffe.layers.Reduction(n.ip, loss_weight=1)
    return n.to_proto()


def test_attributes_of_nets_and_blobs() -> None:
    net = pycaffe.Net(small_net(), pycaffe.TRAIN)
    assert list(net.blobs) == list(net._blob_names) == ["data", "ip", "loss"]
    assert list(net.params) == ["ip"] and list(net.layer_dict) == list(net._layer_names) == ["data", "ip", "loss"]
    assert [layer.type for layer in net.layers] == ["DummyData", "InnerProduct", "Reduction"]
    assert net.top_names["ip"] == ["ip"] and net.bottom_names["ip"] == ["data"]
    assert (net.inputs, net.outputs, list(net._inputs), list(net._outputs)) == ([], ["loss"], [], [2])
    assert dict(net.blob_loss_weights) == {"data": 0, "ip": 0, "loss": 1}
    blob = net.blobs["data"]
    assert (blob.num, blob.channels, blob.height, blob.width, blob.count) == (2, 1, 4, 4, 32)
    assert list(blob.shape) == [2, 1, 4, 4] and blob.data.shape == blob.diff.shape == (2, 1, 4, 4)
    assert [parameter.data.shape for parameter in net.layers[1].blobs] == [(2, 16), (2,)]


def test_attributes_of_solvers(tmp_path: Path) -> None:
    (tmp_path / "net.prototxt").write_text(str(small_net()))
    file = tmp_path / "solver.prototxt"
    file.write_text(f'train_net: "{tmp_path}/net.prototxt" base_lr: 0.5 lr_policy: "fixed" max_iter: 9 display: 3')
    solver = pycaffe.SGDSolver(str(file))
    solver.step(2)
    assert (solver.iter, solver.lr, len(solver.test_nets), list(solver.net.params)) == (2, 0.5, 0, ["ip"])
    assert (solver.param.max_iter, solver.param.display, solver.param.layer_wise_reduce) == (9, 3, True)
    solver.close()


def test_constants() -> None:
    assert (pycaffe.TRAIN, pycaffe.TEST) == (0, 1)
    assert pycaffe.__version__.startswith("1.")
