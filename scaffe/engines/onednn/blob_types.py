"""The data type of each blob: decided in one place, from the layers that write and read it."""

from __future__ import annotations

from scaffe.blob import Blob
from scaffe.engine import NetView
from scaffe.layers.split import Split


def low_blobs(net: NetView) -> list[Blob]:
    """Return the blobs whose values and gradients are bfloat16 between layers.

    All layers that write or read such a blob take bfloat16. Losses, the net's outputs, and the blobs of layers such as
    Softmax and data layers stay float32. A Split's tops have the type of its bottom, whose values they share.
    """
    shared: dict[Blob, Blob] = {}  # a Split's top: the blob whose values it shares
    full = {net.blobs[name] for name in net.outputs}
    full.update(net.tops[i][j] for i, j, _ in net.losses)
    blobs: list[Blob] = []
    for layer, bottom, top in zip(net.layers, net.bottoms, net.tops, strict=True):
        blobs += top
        if isinstance(layer, Split):
            shared.update((blob, shared.get(bottom[0], bottom[0])) for blob in top)
        if not layer.takes_bf16:
            full.update(bottom, top)
    full = {shared.get(blob, blob) for blob in full}
    return [blob for blob in blobs if shared.get(blob, blob) not in full]
