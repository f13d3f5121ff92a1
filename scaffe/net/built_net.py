"""BuiltNet: the layers of a prototxt over their blobs, checked, with packed parameters, ready to be computed."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Sequence

import scaffe.layers  # noqa: F401  registers the layers
from scaffe import engines
from scaffe.blob import Blob
from scaffe.blobs.held import Held
from scaffe.blobs.packed import PackedParameters, ParameterBlob
from scaffe.blobs.shared_forms import SharedForms
from scaffe.blobs.sharing import Sharing
from scaffe.context import Context
from scaffe.devices.gpu import Gpu
from scaffe.engine import REFERENCE
from scaffe.errors import NetError
from scaffe.layers.base_data import BaseData
from scaffe.layers.layer import Layer, asked_engine, asks_for_plain_code, check_counts, check_types, create
from scaffe.monitor.log import log
from scaffe.net.callbacks import Callbacks
from scaffe.net.graph import LayerNode, filter_layers, followers, insert_splits, joins, labels, made_by, need_backward
from scaffe.proto import LayerParameter, NetParameter, NetState, Phase, numbers, strings
from scaffe.proto.files import read_net

AUTOMATIC = "(automatic)"  # Caffe's name of a top that the prototxt leaves out


class BuiltNet:
    """Build the net of a prototxt file or NetParameter for a context's phase; scaffe.net.Net says what it can do.

    `level` takes the place of the file's own, `stages` join those of the file. The context gets an engine of its own,
    on `gpu` or on the CPU. Raise NetError, ShapeError or PrototxtError where the net can't be built.
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | NetParameter,
        context: Context,
        gpu: Gpu | None,
        level: int | None,
        stages: Sequence[str],
    ):
        self.context = context
        self.engine = self.context.engine = engines.create(self.context.compute, gpu)
        if context.forms is None and context.compute.numbers == "bf16":
            context.forms = SharedForms(private=True)
        param = model if isinstance(model, NetParameter) else read_net(model)
        numbers.check(param, NetError)
        strings.check(param, NetError)
        kept = filter_layers(param, _state(param, self.context.phase, level, stages))
        if not isinstance(model, NetParameter):
            check_types(kept.layer, model)
        self.param = insert_splits(kept, param)
        self.keep_diffs = True  # of blobs; without, an engine's gradients take turns with less memory
        self.keep_data = True  # of blobs in the test phase; without, values on a GPU take turns too
        self.name = param.name
        self.held = Held()  # arrays of blobs in users' hands
        self.callbacks: dict[str, Callbacks] = {}  # by the method that they are called around
        self._build()
        self.sharing = Sharing(self.name, self.params, self.packed, self.held, self.engine)

    def _build(self) -> None:
        self.blobs: OrderedDict[str, Blob] = OrderedDict()
        self.layers: list[Layer] = []
        self.bottoms: list[list[Blob]] = []
        self.tops: list[list[Blob]] = []
        self._shapes: list[list[tuple[int, ...]]] = []
        self.parameters: list[ParameterBlob] = []
        for param, label in zip(self.param.layer, labels(self.param.layer), strict=True):
            if self.param.engine and not param.engine:
                param.engine = self.param.engine
            self._add_layer(param, label)
        self._log_without_effect()
        for i, j in followers(self.param.layer).items():
            self.layers[i].follower, self.layers[i].follower_is_next = self.layers[j], j == i + 1
        for i, (j, k) in joins(self.param.layer).items():
            self.layers[i].joined = self.layers[j], k
        self.nodes = [self._node(i) for i in range(len(self.layers))]
        need_backward(self.nodes, self.param.force_backward)
        self._check_names()
        self._check_batch_splits()
        self.params = OrderedDict((layer.name, layer.blobs) for layer in self.layers if layer.blobs)
        self.packed = PackedParameters(self.parameters, self.engine.allocate)
        self.packed.forms = self.context.forms if self.engine.in_host_memory else None  # on a GPU each pass makes them
        if any(parameter.sharers for parameter in self.parameters):  # of which one's array does not show another's use
            self.packed.expose()
        self.outputs = _outputs(self.nodes)
        self.inputs = [top for layer in self.param.layer if layer.type == "Input" for top in layer.top]
        self._weigh_losses()
        self._announce_labels()

    def _log_without_effect(self) -> None:
        """Log fields without effect, such as how many layers ask for a library that is not that of the engine."""
        for asked, name in (("MKLDNN", "onednn"), ("CUDNN", "cuda")):
            count = sum(asked_engine(param) == asked for param in self.param.layer)
            if count and self.engine.name != name:
                log.info("engine: %s of %d layer(s) has no effect: %s computes them", asked, count, self.engine.name)
        if unrolled := [param.name for param in self.param.layer if param.recurrent_param.debug_info]:
            log.info("debug_info of layer '%s' has no effect: no net is unrolled", "', '".join(unrolled))

    def _announce_labels(self) -> None:
        """Give data layers the classes of the layers that take their tops for labels."""
        for i, layer in enumerate(self.layers):
            if taken := layer.labels_taken():
                k, top = made_by(self.param.layer, i, 1)
                if isinstance(maker := self.layers[k], BaseData):
                    maker.accept(top, *taken)

    def _add_layer(self, param: LayerParameter, label: str) -> None:
        param.MergeFrom(LayerParameter(phase=Phase.Name(self.context.phase)))
        layer = create(param, self.context)
        layer.label = label
        if self.engine.name != REFERENCE and asks_for_plain_code(param):
            log.info("layer '%s' (%s) computes in numpy: it says engine: CAFFE", layer.name, layer.type)
        bottom = [self.blobs[name] for name in param.bottom]
        top = [self._top(param, name) for name in param.top]
        if layer.makes_top and not top:
            top.append(Blob((), self.engine.xp))
        check_counts(layer, bottom, top)
        layer.setup(bottom, top)
        layer.reshape(bottom, top)
        for blob in top:
            layer.check_size(blob.shape, "a top")
        self.layers.append(layer)
        self.bottoms.append(bottom)
        self.tops.append(top)
        self._shapes.append([blob.shape for blob in bottom])
        self._add_parameters(layer)

    def _top(self, param: LayerParameter, name: str) -> Blob:
        if name in self.blobs and name not in param.bottom:
            raise NetError(
                f"layer '{param.name}': another layer already produces its top '{name}'; give it another name"
            )
        blob = self.blobs.setdefault(name, Blob((), self.engine.xp))
        blob.held = self.held
        return blob

    def _add_parameters(self, layer: Layer) -> None:
        specs = layer.param.param
        if len(specs) > len(layer.blobs):
            raise layer.error(f"{len(specs)} param fields for {len(layer.blobs)} parameter blob(s)")
        for index, blob in enumerate(layer.blobs):
            blob.held = self.held
            spec = specs[index] if index < len(specs) else None
            parameter = ParameterBlob.from_spec(layer.name, index, blob, spec, index in layer.statistics)
            owner = parameter.join(self.parameters)
            layer.param_propagate_down.append(owner.rate != 0 or self.param.force_backward)

    def _node(self, i: int) -> LayerNode:
        layer, param = self.layers[i], self.param.layer[i]
        if param.propagate_down and len(param.propagate_down) != len(param.bottom):
            raise layer.error(f"{len(param.propagate_down)} propagate_down fields for {len(param.bottom)} bottoms")
        return LayerNode(
            bottoms=param.bottom,
            tops=list(param.top) or [AUTOMATIC] * len(self.tops[i]),
            learns=any(layer.param_propagate_down),
            is_loss=[layer.loss_weight(j) != 0 for j in range(len(self.tops[i]))],
            propagate_down=param.propagate_down,
            can_force=[layer.allows_force_backward(j) for j in range(len(param.bottom))],
        )

    def _check_names(self) -> None:
        """Raise NetError where several layers of one name have parameters, which files keep by the layer's name."""
        learning: dict[str, list[Layer]] = {}
        for layer in self.layers:
            if layer.blobs:
                learning.setdefault(layer.name, []).append(layer)
        for name, (_, *others) in learning.items():
            if others:
                which = ", ".join(f"{one.type} with top '{' '.join(one.param.top)}'" for one in learning[name])
                called = f"are called '{name}'" if name else "have no name"
                raise NetError(
                    f"{len(others) + 1} layers with parameters {called} ({which}); give each a name of its own"
                )

    def _check_batch_splits(self) -> None:
        if self.context.size == 1 or self.context.scaling != "strong":
            return
        for layer, bottom in zip(self.layers, self.bottoms, strict=True):
            if reason := layer.mixes_samples(bottom):
                raise layer.error(
                    f"{reason}, so the batch can't be divided over {self.context.divisors}; "
                    "give each the whole batch with --scal weak"
                )

    def _weigh_losses(self) -> None:
        """Note the tops that make up the loss and let their diffs hold the weights."""
        self.losses: list[tuple[int, int, float]] = []
        for i, layer in enumerate(self.layers):
            for j, top in enumerate(self.tops[i]):
                if weight := layer.loss_weight(j):
                    self.losses.append((i, j, weight))
                    top.diff_array[...] = weight


def _state(param: NetParameter, phase: int, level: int | None, stages: Sequence[str]) -> NetState:
    """Return which layers are wanted: those of the phase, and of level and stages that are given, or the net's own."""
    if isinstance(stages, str):
        raise NetError(f"stages must be a list of names, got '{stages}'")
    state = NetState()
    state.CopyFrom(param.state)
    state.phase = phase  # type: ignore[assignment]
    if level is not None:
        state.level = level
    state.stage.extend(stages or ())
    return state


def _outputs(nodes: Sequence[LayerNode]) -> list[str]:
    """Return the blobs that nobody uses after they are made, in Caffe's order: by name."""
    unused: set[str] = set()
    for node in nodes:
        unused = (unused - set(node.bottoms)) | set(node.tops)
    return sorted(unused - {AUTOMATIC})
