"""Resize and Upsample: products by the weights of the interpolation, which ONNX's own reference gives."""

from __future__ import annotations

import numpy as np

from scaffe.onnx.grown_net import GrownNet
from scaffe.onnx.library import library
from scaffe.onnx.readers import Op, Unreadable, reads

OF_RESIZE = ("coordinate_transformation_mode", "cubic_coeff_a", "exclude_outside", "mode", "nearest_mode", "antialias")


@reads("Resize", "Upsample")
def _resize(layers: GrownNet, op: Op) -> str:
    x = op.blob(layers)
    shape = layers.shape(x)
    axes = [axis % len(shape) for axis in op.get("axes") or range(len(shape))]
    scales, sizes = _asked(op)
    if op.get("keep_aspect_ratio_policy", "stretch") != "stretch":
        raise Unreadable("its keep_aspect_ratio_policy is not stretch")
    if op.get("coordinate_transformation_mode") == "tf_crop_and_resize":
        raise Unreadable("its coordinate_transformation_mode is tf_crop_and_resize")
    for place, axis in enumerate(axes):
        scale, size = scales[place] if scales else None, sizes[place] if sizes else None
        if scale == 1 or size == shape[axis]:
            continue
        if axis == 0:
            raise Unreadable("it resizes the batch")
        x = _along(layers, x, axis, _weights(op, shape[axis], scale, size))
    return x


def _asked(op: Op) -> tuple[list[float], list[int]]:
    """Return the scales, or the sizes, of the axes."""
    if op.kind == "Upsample" or op.opset < 11:
        scales = op.needed(1) if op.given(1) else np.array(op.get("scales"))
        return [float(scale) for scale in scales], []
    if op.given(3) and op.needed(3).size:
        return [], [int(size) for size in op.needed(3)]
    return [float(scale) for scale in op.needed(2)], []


def _weights(op: Op, size: int, scale: float | None, wanted: int | None) -> np.ndarray:
    """Return the weights (resized x size) of an axis: what the op makes of a 1 at each place."""
    onnx = library()
    from onnx.reference import ReferenceEvaluator

    attributes = {name: op.attributes[name] for name in OF_RESIZE if name in op.attributes}
    if op.kind == "Upsample" or op.opset < 11:
        attributes |= dict(coordinate_transformation_mode="asymmetric", nearest_mode="floor")
    helper, kind = onnx.helper, onnx.TensorProto
    inputs = ["x", "", "scales"] if scale is not None else ["x", "", "", "sizes"]
    types = {"x": kind.FLOAT, inputs[-1]: kind.FLOAT if scale is not None else kind.INT64}
    node = helper.make_node("Resize", inputs, ["y"], **attributes)
    infos = [helper.make_tensor_value_info(name, one, None) for name, one in types.items()]
    graph = helper.make_graph([node], "weights", infos, [helper.make_tensor_value_info("y", kind.FLOAT, None)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    last = np.array([1, scale], np.float32) if scale is not None else np.array([size, wanted], np.int64)
    (found,) = ReferenceEvaluator(model).run(None, {"x": np.eye(size, dtype=np.float32), inputs[-1]: last})
    return np.asarray(found, np.float32).T


def _along(layers: GrownNet, x: str, axis: int, weights: np.ndarray) -> str:
    """Multiply an axis by weights (resized x size)."""
    order = [*(one for one in range(len(layers.shape(x))) if one != axis), axis]
    param = dict(num_output=len(weights), bias_term=False, axis=len(order) - 1)
    y = layers.frozen("InnerProduct", [layers.permute(x, order)], [weights], inner_product_param=param)
    return layers.permute(y, [order.index(one) for one in range(len(order))])
