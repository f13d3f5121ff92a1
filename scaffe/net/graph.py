"""From a NetParameter to the plan of a net: pure passes over its list of layers.

asked_state    which layers are wanted
filter_layers  keep the layers whose include and exclude rules meet the state (phase, level, stages)
labels         a text for each layer by which it differs from all others: its name, numbered where several have it
insert_splits  insert a Split layer after each top with several users, so that each top has one user
made_by        which layer makes a layer's bottom, Splits left out
need_backward  which layers and bottoms take part in the backward pass
followers      which layers come right behind another, so that an engine may compute both at once
joins          which layers with several bottoms come right behind another
outputs        the blobs that nobody uses
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from scaffe.errors import NetError
from scaffe.near import near
from scaffe.proto import LayerParameter, NetParameter, NetState, NetStateRule, Phase

AUTOMATIC = "(automatic)"  # Caffe's name of a top that the prototxt leaves out


def asked_state(param: NetParameter, phase: int, level: int | None, stages: Sequence[str]) -> NetState:
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


def filter_layers(net: NetParameter, state: NetState) -> NetParameter:
    """Return the net with the layers that `state` selects.

    Raise NetError if a layer has both include and exclude rules, or no layer is left.
    """
    kept = NetParameter()
    kept.CopyFrom(net)
    kept.ClearField("layer")
    kept.state.CopyFrom(state)
    places = [i for i, layer in enumerate(net.layer) if is_included(layer, state)]
    if not places:
        why = f"{len(net.layer)} layer(s), none of them for this phase, level and stages" if net.layer else "no layers"
        raise NetError(f"net '{net.name}': {why}")
    kept.layer.extend(net.layer[i] for i in places)
    return kept


def labels(layers: Sequence[LayerParameter]) -> list[str]:
    """Return a text for each layer that no other has: its name, or "name#2" and so on where an earlier one has it.

    Caffe's nets may have several layers of one name, or without a name.
    """
    found: list[str] = []
    taken, names = set[str](), {layer.name for layer in layers}
    for layer in layers:
        numbered = (f"{layer.name}#{k}" for k in count(2))
        free = (one for one in numbered if one not in taken and one not in names)
        found.append(next(free) if layer.name in taken else layer.name)
        taken.add(found[-1])
    return found


def is_included(layer: LayerParameter, state: NetState) -> bool:
    """Return whether a layer's rules meet the state. Raise NetError for a layer with both kinds of rules."""
    if layer.include and layer.exclude:
        raise NetError(f"layer '{layer.name}' has both include and exclude rules; give one kind")
    if layer.include:
        return any(_meets(state, rule) for rule in layer.include)
    return not any(_meets(state, rule) for rule in layer.exclude)


def _meets(state: NetState, rule: NetStateRule) -> bool:
    stages = set(state.stage)
    return (
        (not rule.HasField("phase") or rule.phase == state.phase)
        and (not rule.HasField("min_level") or state.level >= rule.min_level)
        and (not rule.HasField("max_level") or state.level <= rule.max_level)
        and stages.issuperset(rule.stage)
        and stages.isdisjoint(rule.not_stage)
    )


TopIndex = tuple[int, int]  # layer, index among its tops


def insert_splits(net: NetParameter, whole: NetParameter | None = None) -> NetParameter:
    """Return the net with a Split layer, with Caffe's name for it, after each top that has several users.

    A loss weight counts as a user and moves to the Split's first top. Raise NetError for a bottom that no earlier
    layer produces; `whole` is the net before `filter_layers`, for the error.
    """
    sources, users, weights = _uses(net, whole or net)
    split = NetParameter()
    split.CopyFrom(net)
    split.ClearField("layer")
    taken: Counter[TopIndex] = Counter(top for top, weight in weights.items() if weight)
    for i, layer in enumerate(net.layer):
        copy = split.layer.add()
        copy.CopyFrom(layer)
        for j, source in enumerate(sources[i]):
            if users[source] > 1:
                copy.bottom[j] = _split_top(net, source, taken[source])
                taken[source] += 1
        for j in range(len(layer.top)):
            if users[i, j] > 1:
                split.layer.append(_split_layer(net, (i, j), users[i, j], weights.get((i, j), 0.0)))
                if weights.get((i, j)):
                    copy.loss_weight[j] = 0
    return split


def made_by(layers: Sequence[LayerParameter], i: int, j: int) -> TopIndex:
    """Return the top that is bottom j of layer i; Splits between them are skipped."""
    name = layers[i].bottom[j]
    maker = next(k for k in range(i - 1, -1, -1) if name in layers[k].top)
    return made_by(layers, maker, 0) if layers[maker].type == "Split" else (maker, list(layers[maker].top).index(name))


def _uses(
    net: NetParameter, whole: NetParameter
) -> tuple[list[list[TopIndex]], Counter[TopIndex], dict[TopIndex, float]]:
    """Return each bottom's source top, the number of users and the loss weight of each top."""
    sources: list[list[TopIndex]] = []
    users: Counter[TopIndex] = Counter()
    weights: dict[TopIndex, float] = {}
    last: dict[str, TopIndex] = {}
    for i, layer in enumerate(net.layer):
        for name in layer.bottom:
            if name not in last:
                why = _why_missing(name, net, whole) or near(name, last or ["none"], "blobs so far")
                raise NetError(f"layer '{layer.name}': no layer before it produces its bottom '{name}'{why}")
        sources.append([last[name] for name in layer.bottom])
        users.update(sources[i])
        last.update({name: (i, j) for j, name in enumerate(layer.top)})
        for j, weight in enumerate(layer.loss_weight[: len(layer.top)]):
            weights[i, j] = weight
            users[i, j] += bool(weight)
    return sources, users, weights


def _why_missing(name: str, net: NetParameter, whole: NetParameter) -> str:
    """Return which layer produces a bottom that is missing, and why it does not count; "" where none does."""
    if behind := next((layer for layer in net.layer if name in layer.top), None):
        return f"; layer '{behind.name}' ({behind.type}) does, behind it: write it before"
    maker = next((layer for layer in whole.layer if name in layer.top), None)
    if maker is None:
        return ""
    this, other = Phase.Name(net.state.phase), Phase.Name(1 - net.state.phase)
    flipped = NetState()
    flipped.CopyFrom(net.state)
    flipped.MergeFrom(NetState(phase=other))
    left_out = f"is of the phase {other} alone" if is_included(maker, flipped) else "is left out by its rules"
    return f"; layer '{maker.name}' ({maker.type}) does, but {left_out}: give the phase {this} one, or change its rules"


def _split_name(net: NetParameter, top: TopIndex) -> str:
    return f"{net.layer[top[0]].top[top[1]]}_{net.layer[top[0]].name}_{top[1]}_split"


def _split_top(net: NetParameter, top: TopIndex, index: int) -> str:
    return f"{_split_name(net, top)}_{index}"


def _split_layer(net: NetParameter, top: TopIndex, users: int, weight: float) -> LayerParameter:
    layer = LayerParameter(name=_split_name(net, top), type="Split", bottom=[net.layer[top[0]].top[top[1]]])
    layer.top.extend(_split_top(net, top, k) for k in range(users))
    if weight:
        layer.loss_weight.extend([weight] + [0.0] * (users - 1))
    return layer


@dataclass
class LayerNode:
    """A layer in the net's graph: the input of `need_backward`, and its results `backward` and `down`."""

    bottoms: Sequence[str]
    tops: Sequence[str]
    learns: bool  # has a parameter whose lr_mult is not 0
    is_loss: Sequence[bool]  # per top
    propagate_down: Sequence[bool] = ()  # the prototxt's field
    can_force: Sequence[bool] = ()  # per bottom: whether force_backward applies
    backward: bool = False  # result: the layer has a backward pass
    down: list[bool] = field(default_factory=list)  # result, per bottom: it gets a gradient


def need_backward(nodes: Sequence[LayerNode], force: bool = False) -> None:
    """Determine which layers run backward and which bottoms get gradients, as Caffe's Net::Init does.

    Forward over the layers: a gradient is needed from each learning layer on. Backward: only on paths to a loss.
    `force` selects the gradients of all bottoms.
    """
    needing: dict[str, bool] = {}
    for node in nodes:
        node.down = list(node.propagate_down) or [needing[name] for name in node.bottoms]
        node.backward = node.learns or any(node.down) or any(needing[name] for name in node.bottoms)
        needing.update({name: node.backward for name in node.tops})
    under_loss: set[str] = set()
    skipped: set[str] = set()
    for node in reversed(nodes):
        _keep_under_loss(node, under_loss, skipped)
    if force:
        for node in nodes:
            node.backward = True
            node.down = [a or b for a, b in zip(node.down, node.can_force, strict=True)]


def _keep_under_loss(node: LayerNode, under_loss: set[str], skipped: set[str]) -> None:
    reaching = [loss or name in under_loss for name, loss in zip(node.tops, node.is_loss, strict=True)]
    contributes = any(reaching)
    wanted = any(r and name not in skipped for r, name in zip(reaching, node.tops, strict=True))
    node.backward = node.backward and contributes and wanted
    node.down = [down and contributes and node.backward for down in node.down]
    under_loss.update(node.bottoms if contributes else ())
    skipped.update(name for name, down in zip(node.bottoms, node.down, strict=True) if not down)


def followers(layers: Sequence[LayerParameter]) -> dict[int, int]:
    """Return the pairs {i: j} in which the only bottom of layer j is the only top of layer i.

    Splits must have been inserted, so that each top has one user.
    """
    makers: dict[str, int] = {}
    pairs: dict[int, int] = {}
    for j, layer in enumerate(layers):
        if len(layer.bottom) == 1 and len(layers[i := makers[layer.bottom[0]]].top) == 1:
            pairs[i] = j
        makers.update((name, j) for name in layer.top)
    return pairs


def joins(layers: Sequence[LayerParameter]) -> dict[int, tuple[int, int]]:
    """Return {i: (j, k)} where bottom k of layer j, which has several, is the only top of layer i; see `followers`."""
    makers: dict[str, int] = {}
    found: dict[int, tuple[int, int]] = {}
    for j, layer in enumerate(layers):
        if len(layer.bottom) > 1:
            found.update({makers[name]: (j, k) for k, name in enumerate(layer.bottom)})
        makers.update((name, j) for name in layer.top)
    return {i: join for i, join in found.items() if len(layers[i].top) == 1}


def outputs(nodes: Sequence[LayerNode]) -> list[str]:
    """Return the blobs that nobody uses after they are made, in Caffe's order: by name."""
    unused: set[str] = set()
    for node in nodes:
        unused = (unused - set(node.bottoms)) | set(node.tops)
    return sorted(unused - {AUTOMATIC})
