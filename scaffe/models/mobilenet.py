"""MobileNet: depthwise and pointwise convolutions in turn."""

from __future__ import annotations

from scaffe import layers as L
from scaffe.models.blocks import MSRA, RATES_AND_DECAYS
from scaffe.models.model import Head, Model
from scaffe.models.normed import conv_bn
from scaffe.spec.netspec import NetSpec

# Outputs and stride of each pair of convolutions (table 1).
_PAIRS = {
    "2_1": (64, 1),
    "2_2": (128, 2),
    "3_1": (128, 1),
    "3_2": (256, 2),
    "4_1": (256, 1),
    "4_2": (512, 2),
    **{f"5_{i}": (512, 1) for i in range(1, 6)},
    "5_6": (1024, 2),
    "6": (1024, 1),
}


def _mobilenet(n: NetSpec, classes: int, training: bool, side: int) -> list[Head]:
    x, channels = conv_bn(n, "conv1", n.data, 32, 3, "relu1", stride=2, pad=1), 32
    for pair, (outputs, stride) in _PAIRS.items():
        # Depthwise filters have few weights, and therefore no weight decay (section 3.1, last paragraph).
        spec = [dict(lr_mult=1, decay_mult=0)]
        x = conv_bn(
            n, f"conv{pair}/dw", x, channels, 3, f"relu{pair}/dw", group=channels, stride=stride, pad=1, param=spec
        )
        x, channels = conv_bn(n, f"conv{pair}/sep", x, outputs, 1, f"relu{pair}/sep"), outputs
    n.pool6 = L.Pooling(x, pool="AVE", global_pooling=True)
    n.fc7 = L.Convolution(n.pool6, num_output=classes, kernel_size=1, weight_filler=MSRA, param=RATES_AND_DECAYS)
    return [Head(n.fc7, top5="accuracy_top5")]


# The paper uses RMSProp as in Inception V3; the values are from Szegedy et al. 2016, section 8: the rate falls by 6 %
# every two epochs, here with batches of 64.
MOBILENET = Model(
    name="mobilenet",
    title="MOBILENET",
    paper="Howard et al. 2017, width 1, 224 x 224",
    body=_mobilenet,
    shape=(3, 224, 224),
    sizes=dict(side=224),  # section 3.4's resolution
    parameters=4_231_976,
    batch=64,
    transform=dict(scale=0.017, crop_size=224, mean_value=[103.94, 116.78, 123.68]),
    train_transform=dict(mirror=True),
    solver_fields=dict(
        type="RMSProp", rms_decay=0.9, delta=1.0, base_lr=0.045, weight_decay=0.00004, clip_gradients=2.0,
        lr_policy="step", stepsize=40_037, gamma=0.94, max_iter=2_000_000, test_iter=[1000], test_interval=5000,
        display=20, snapshot=10_000,
    ),
)  # fmt: skip
