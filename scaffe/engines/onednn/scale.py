"""Scale by oneDNN's batch normalization, as part of the BatchNorm before it; else the reference form."""

from __future__ import annotations

from scaffe.blob import Shape
from scaffe.engines.onednn.fusion import FusableLayer
from scaffe.layers.layer import register
from scaffe.layers.scale import Scale


class OnednnScale(FusableLayer, Scale):
    """Scale; a BatchNorm that only this layer follows computes it where there is one factor per channel."""

    takes_bf16 = True

    def by_channel(self, shape: Shape) -> bool:
        """Return whether a bottom of this shape (N x C x ...) is scaled by one learned factor per channel."""
        axis = self.param.scale_param.axis
        return bool(self.blobs) and axis in (1, 1 - len(shape)) and self.blobs[0].shape == shape[1:2]


register("Scale", OnednnScale, engine="onednn")
