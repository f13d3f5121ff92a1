"""Scale as oneDNN has it: part of the BatchNorm before it, else the reference form."""

from __future__ import annotations

from scaffe.blob import Shape
from scaffe.engines.onednn.fusion import Following
from scaffe.layers.layer import register
from scaffe.layers.scale import Scale


class OnednnScale(Following, Scale):
    """Scale, computed by a BatchNorm whose top it alone takes, if it has one factor a channel."""

    def by_channel(self, shape: Shape) -> bool:
        """Say whether bottoms of this shape get one learned factor a channel."""
        axis = self.param.scale_param.axis
        return bool(self.blobs) and axis in (1, 1 - len(shape)) and self.blobs[0].shape == shape[1:2]


register("Scale", OnednnScale, engine="onednn")
