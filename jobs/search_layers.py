"""Random nets for jobs/search.py: layers over images of a few pixels, and a loss.

Each layer keeps its values near 1, so that rounding stays rounding: fillers and constants are small, and no denominator
is near 0.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import NamedTuple

FILLERS = (
    'type: "xavier"',
    'type: "xavier" variance_norm: AVERAGE',
    'type: "gaussian" std: 0.1',
    'type: "uniform" min: -0.2 max: 0.2',
    'type: "msra"',
)
SMOOTH = ("TanH", "Sigmoid", "ELU", "BNLL", "Swish", "Mish")
CORNERED = ("ReLU", "PReLU", "AbsVal", "Clip", "ReLU6", "HardSwish")  # a rounding at the corner is another gradient
MOST_VALUES = 500  # of a sample at the first inner product
CLASSES = 4
OF_PIECES = 200  # outputs of a layer that may be cut into the pieces of several messages


class Top(NamedTuple):
    """A blob: its name, and its shape without the batch's axis."""

    name: str
    shape: tuple[int, ...]

    @property
    def count(self) -> int:
        """The number of values of a sample."""
        total = 1
        for length in self.shape:
            total *= length
        return total


class NetDraw:
    """Draws a net, layer by layer, of which `lines` are the layers so far.

    With `statistics` layers may normalise by their rank's rows; then none draws masks or ignores labels, which differ
    where passes divide a batch instead of ranks.
    """

    def __init__(self, random: Random, batch: int, statistics: bool):
        self.random, self.batch = random, batch
        self.lines: list[str] = []
        self._wants_statistics = statistics
        self._shared: Top | None = None
        self._shared_rates = ""
        self._read = {"data"}  # blobs that other layers read, too: none may write them
        self._names = 0

    def chance(self, share: float) -> bool:
        """Return True so often."""
        return self.random.random() < share

    def add(self, kind: str, bottoms: str, top: str, *fields: str) -> str:
        """Add a layer; return its top's name. `bottoms` and `top` are names with blanks between them."""
        blobs = [f'bottom: "{name}"' for name in bottoms.split()] + [f'top: "{name}"' for name in top.split()]
        self.lines.append(" ".join([f'layer {{ name: "{self.name(kind)}" type: "{kind}"', *blobs, *fields, "}"]))
        return top

    def name(self, kind: str) -> str:
        """Return a name that no other layer or blob has."""
        self._names += 1
        return f"{kind.lower()}{self._names}"

    def filler(self) -> str:
        """Return a weight filler."""
        return f"weight_filler {{ {self.random.choice(FILLERS)} }}"

    def params(self, count: int) -> str:
        """Return the rates of a layer's parameters: some are frozen, some have others."""
        if self.chance(0.5):
            return ""
        if self.chance(0.25):
            return "param { lr_mult: 0 } " * count
        rates = [(self.random.choice([1, 2, 0.5]), self.random.choice([1, 0, 2])) for _ in range(count)]
        return " ".join(f"param {{ lr_mult: {rate:g} decay_mult: {decay:g} }}" for rate, decay in rates)

    # Data.

    def data(self, test_batch: int) -> Top:
        """Add the data layers of both phases; return the images."""
        channels, side = self.random.choice([1, 2, 3]), self.random.choice([6, 8, 9])
        records, transform, shape = (
            self.random.randint(17, 90),
            "mean_value: 128 scale: 0.0078125",
            (channels, side, side),
        )
        if self.chance(0.3):
            transform += f" crop_size: {side - 2} mirror: {self.random.choice(['true', 'false'])}"
            shape = channels, side - 2, side - 2
        source = f"synthetic:{records}x{channels}x{side}x{side}:{CLASSES}:{self.random.randint(0, 99)}"
        for phase, batch in (("TRAIN", self.batch), ("TEST", test_batch)):
            self._data(phase, batch, "data label", source, transform)
        self._phases = (("TRAIN", self.batch), ("TEST", test_batch)), records
        return Top("data", shape)

    def target(self, channels: int, side: int = 1) -> Top:
        """Add data layers of targets from 0 to 1, of as many records as the images."""
        (phases, records), top = self._phases, self.name("target")
        source = f"synthetic:{records}x{channels}x{side}x{side}:{CLASSES}:{self.random.randint(100, 199)}"
        for phase, batch in phases:
            self._data(phase, batch, top, source, "scale: 0.00390625")
        return Top(top, (channels, side, side))

    def _data(self, phase: str, batch: int, tops: str, source: str, transform: str) -> None:
        fields = f'data_param {{ source: "{source}" batch_size: {batch} }}', f"transform_param {{ {transform} }}"
        self.add("Data", "", tops, f"include {{ phase: {phase} }}", *fields)

    # Layers.

    def layer(self, x: Top) -> Top:
        """Add a layer over a blob; return its top."""
        if self._wants_statistics and self.chance(0.5):
            return self.batch_norm(x)
        kinds: list[Callable[[Top], Top]] = [self.activation, self.activation, self.scale, self.dropout, self.fork]
        kinds += [self.normalize, self.of_forks, self.power, self.slice]
        if len(x.shape) == 3:
            kinds += [self.convolution] * 4 + [self.pooling, self.pooling, self.lrn, self.mvn, self.deconvolution]
            kinds += [self.depthwise, self.enlarge, self.shared_pixels]
        else:
            kinds += [self.inner_product] * 4 + [self.shared, self.shared, self.embed]
        return self.random.choice(kinds)(x)

    def convolution(self, x: Top) -> Top:
        """Add a convolution."""
        side = min(x.shape[1:])
        kernel = self.random.choice([k for k in (1, 2, 3) if k <= side])
        stride, pad = self.random.choice([1, 1, 2]), self.random.choice([0, 1])
        dilation = 2 if 2 * (kernel - 1) < side and self.chance(0.2) else 1
        group = x.shape[0] if self.chance(0.25) else 1
        outputs = group * self.random.randint(1, max(1, 6 // group))
        bias = self.chance(0.75)
        sides = [(n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1 for n in x.shape[1:]]
        fields = f"num_output: {outputs} kernel_size: {kernel} stride: {stride} pad: {pad} dilation: {dilation}"
        fields += f" group: {group} {self.filler()} bias_term: {str(bias).lower()}"
        if bias:
            fields += ' bias_filler { type: "constant" value: 0.1 }'
        top = self.name("conv")
        self.add("Convolution", x.name, top, self.params(1 + bias), f"convolution_param {{ {fields} }}")
        return Top(top, (outputs, *sides))

    def deconvolution(self, x: Top) -> Top:
        """Add a deconvolution, unless the images are large."""
        if x.shape[1] > 5:
            return self.convolution(x)
        outputs, stride = self.random.randint(1, 3), self.random.choice([1, 2])
        fields = f"num_output: {outputs} kernel_size: 2 stride: {stride} {self.filler()}"
        top = self.name("deconv")
        self.add("Deconvolution", x.name, top, self.params(2), f"convolution_param {{ {fields} }}")
        return Top(top, (outputs, *(stride * (n - 1) + 2 for n in x.shape[1:])))

    def pooling(self, x: Top) -> Top:
        """Add a pooling, of averages three times out of four."""
        if min(x.shape[1:], default=0) < 3:
            return self.activation(x)
        pool, kernel, stride = (
            "MAX" if self.chance(0.25) else "AVE",
            self.random.choice([2, 3]),
            self.random.choice([1, 2]),
        )
        top = self.name("pool")
        self.add("Pooling", x.name, top, f"pooling_param {{ pool: {pool} kernel_size: {kernel} stride: {stride} }}")
        return Top(top, (x.shape[0], *(-(-(n - kernel) // stride) + 1 for n in x.shape[1:])))

    def lrn(self, x: Top) -> Top:
        """Add a local response normalisation."""
        region = self.random.choice(["ACROSS_CHANNELS", "WITHIN_CHANNEL"])
        top = self.name("lrn")
        self.add("LRN", x.name, top, f"lrn_param {{ local_size: 3 alpha: 0.5 norm_region: {region} }}")
        return Top(top, x.shape)

    def mvn(self, x: Top) -> Top:
        """Add a normalisation of each sample."""
        across = str(self.chance(0.5)).lower()
        top = self.name("mvn")
        self.add("MVN", x.name, top, f"mvn_param {{ eps: 0.1 across_channels: {across} }}")
        return Top(top, x.shape)

    def normalize(self, x: Top) -> Top:
        """Add a division by a norm, not too near 0."""
        top = self.name("normalize")
        if self.chance(0.3):
            self.add("L2Normalization", x.name, top, "l2n_param { eps: 0.1 }")
        else:
            flags = (str(self.chance(0.5)).lower() for _ in range(2))
            fields = "across_spatial: {} channel_shared: {}".format(*flags)
            self.add("Normalize", x.name, top, self.params(1), f"norm_param {{ eps: 0.1 {fields} }}")
        return Top(top, x.shape)

    def of_forks(self, x: Top) -> Top:
        """Add a layer of forks that moves values, or weighs two blobs."""
        channels, top = x.shape[0], self.name("fork")
        kind = self.random.choice(["CReLU", "ShuffleChannel", "Permute", "Axpy"])
        if kind == "ShuffleChannel":
            group = self.random.choice([n for n in range(1, channels + 1) if channels % n == 0])
            self.add(kind, x.name, top, f"shuffle_channel_param {{ group: {group} }}")
        elif kind == "Permute" and len(x.shape) == 3:
            self.add(kind, x.name, top, "permute_param { order: 0 order: 2 order: 3 order: 1 }")
            return Top(top, (*x.shape[1:], channels))
        elif kind == "Axpy" and len(x.shape) == 3:
            means = self.add("Pooling", x.name, self.name("means"), "pooling_param { pool: AVE global_pooling: true }")
            self.add(kind, f"{means} {x.name} {x.name}", top)
        else:
            self.add("CReLU", x.name, top)
            return Top(top, (2 * channels, *x.shape[1:]))
        return Top(top, x.shape)

    def depthwise(self, x: Top) -> Top:
        """Add a convolution of each channel."""
        kind, top = self.random.choice(["DepthwiseConvolution", "ConvolutionDepthwise"]), self.name("depthwise")
        fields = f"num_output: {x.shape[0]} kernel_size: 3 pad: 1 {self.filler()}"
        self.add(kind, x.name, top, self.params(2), f"convolution_param {{ {fields} }}")
        return Top(top, x.shape)

    def enlarge(self, x: Top) -> Top:
        """Add larger images, unless they are large, or smaller ones."""
        if x.shape[1] > 5:
            top = self.add("Interp", x.name, self.name("interp"), "interp_param { shrink_factor: 2 }")
            return Top(top, (x.shape[0], *((n - 1) // 2 + 1 for n in x.shape[1:])))
        top = self.add("Upsample", x.name, self.name("up"), "upsample_param { scale: 2 }")
        return Top(top, (x.shape[0], *(2 * n for n in x.shape[1:])))

    def batch_norm(self, x: Top) -> Top:
        """Add a batch normalisation, and perhaps a scale."""
        top = self.name("bn")
        if self.chance(0.3):
            self.add("BN", x.name, top, "bn_param { scale_filler { value: 1 } }")
            return Top(top, x.shape)
        self.add("BatchNorm", x.name, top, "batch_norm_param { moving_average_fraction: 1 eps: 0.1 }")
        return self.scale(Top(top, x.shape)) if self.chance(0.5) else Top(top, x.shape)

    def activation(self, x: Top) -> Top:
        """Add a function of each value, in place perhaps, without a corner nine times out of ten."""
        kind = self.random.choice(CORNERED if self.chance(0.1) else SMOOTH)
        top = x.name if x.name not in self._read and self.chance(0.5) else self.name("act")
        bounds = "clip_param { min: -0.9 max: 0.9 }" if kind == "Clip" else ""
        self.add(kind, x.name, top, bounds)
        return Top(top, x.shape)

    def scale(self, x: Top) -> Top:
        """Add a learned factor of each channel, or bias, of a layer of its own or of a Parameter layer."""
        top = self.name("scale")
        if self.chance(0.2):
            factor = self.name("factor")
            self.add("Parameter", "", factor, f"parameter_param {{ shape {{ dim: {x.shape[0]} }} }}")
            self.add("Bias", f"{x.name} {factor}", top)
        elif self.chance(0.3):
            self.add("Bias", x.name, top, self.params(1))
        else:
            bias = str(self.chance(0.5)).lower()
            self.add("Scale", x.name, top, f"scale_param {{ bias_term: {bias} }}")
        return Top(top, x.shape)

    def dropout(self, x: Top) -> Top:
        """Add a dropout."""
        if self._wants_statistics:
            return self.batch_norm(x)
        top = self.name("drop")
        self.add("Dropout", x.name, top, f"dropout_param {{ dropout_ratio: {self.random.choice([0.2, 0.5])} }}")
        return Top(top, x.shape)

    def fork(self, x: Top) -> Top:
        """Add two branches over a blob, and join them."""
        branches = [self._branch(x, self.random.randint(1, 4)) for _ in range(2)]
        top = self.name("join")
        if self.chance(0.4):
            self.add("Concat", " ".join(one.name for one in branches), top)
            return Top(top, (sum(one.shape[0] for one in branches), *branches[0].shape[1:]))
        if branches[0].shape != branches[1].shape:
            branches[1] = self._branch(x, branches[0].shape[0])
        how = self.random.choice(["SUM", "SUM coeff: 0.5 coeff: -1", "PROD"])
        self.add("Eltwise", " ".join(one.name for one in branches), top, f"eltwise_param {{ operation: {how} }}")
        return Top(top, branches[0].shape)

    def _branch(self, x: Top, outputs: int) -> Top:
        """Add a convolution of one pixel, or an inner product."""
        top, frozen = self.name("branch"), ""
        if x.name != "data" and self.chance(0.2):
            frozen = "propagate_down: false"
        if len(x.shape) == 1:
            self.add("InnerProduct", x.name, top, self.params(2), frozen, self._product(outputs))
            return Top(top, (outputs,))
        fields = f"convolution_param {{ num_output: {outputs} kernel_size: 1 {self.filler()} }}"
        self.add("Convolution", x.name, top, self.params(2), frozen, fields)
        return Top(top, (outputs, *x.shape[1:]))

    def _product(self, outputs: int) -> str:
        return f"inner_product_param {{ num_output: {outputs} {self.filler()} }}"

    def inner_product(self, x: Top, outputs: int = 0) -> Top:
        """Add an inner product, after layers that leave few values of each sample."""
        while x.count > MOST_VALUES:
            x = self.pooling(x)
        most = OF_PIECES if self.chance(0.1) else 12
        outputs, top = outputs or self.random.randint(2, most), self.name("ip")
        self.add("InnerProduct", x.name, top, self.params(2), self._product(outputs))
        return Top(top, (outputs,))

    def shared(self, x: Top) -> Top:
        """Add an inner product that shares its parameters with others."""
        if self._shared is None:
            self._shared, self._shared_rates = Top(self.name("w"), (self.random.randint(3, 8),)), self.shared_rates()
        x, product = self.inner_product(x, self._shared.count), self._product(self._shared.count)
        for _ in range(2):
            x = self._sharing("InnerProduct", x, self._shared.name, self._shared_rates, product)
        return x

    def shared_pixels(self, x: Top) -> Top:
        """Add two convolutions of one pixel over as many channels, which share their parameters."""
        fields = f"convolution_param {{ num_output: {x.shape[0]} kernel_size: 1 {self.filler()} }}"
        name, rates = self.name("w"), self.shared_rates()
        for _ in range(2):
            x = self._sharing("Convolution", x, name, rates, fields)
        return x

    def shared_rates(self) -> str:
        """Return the rates of shared parameters, which all that share them have: frozen ones, too."""
        return self.random.choice(["", "", "lr_mult: 0", "lr_mult: 2 decay_mult: 0.5"])

    def _sharing(self, kind: str, x: Top, name: str, rates: str, fields: str) -> Top:
        """Add a layer with these parameters, and perhaps an activation."""
        top = Top(self.name("shared"), x.shape)
        self.add(
            kind, x.name, top.name, f'param {{ name: "{name}" {rates} }} param {{ name: "{name}b" {rates} }}', fields
        )
        return self.activation(top) if self.chance(0.5) else top

    def power(self, x: Top) -> Top:
        """Add a power, or an exponential function, of values that a TanH has bounded."""
        bounded, top = self.add("TanH", x.name, self.name("tanh")), self.name("power")
        kind, fields = self.random.choice(
            [("Power", "power_param { power: 2 scale: 0.5 shift: 1.2 }"), ("Exp", "exp_param { scale: 0.5 }"),
             ("Log", "log_param { scale: 0.3 shift: 1.5 }")]
        )  # fmt: skip
        self.add(kind, bounded, top, fields)
        return Top(top, x.shape)

    def slice(self, x: Top) -> Top:
        """Cut the channels into two parts, of which one goes through another layer, and join them."""
        if x.shape[0] < 2:
            return self.activation(x)
        at, parts, top = (
            self.random.randint(1, x.shape[0] - 1),
            [self.name("part") for _ in range(2)],
            self.name("join"),
        )
        self.add("Slice", x.name, " ".join(parts), f"slice_param {{ axis: 1 slice_point: {at} }}")
        first = self._branch(Top(parts[0], (at, *x.shape[1:])), self.random.randint(1, 4))
        self.add("Concat", f"{first.name} {parts[1]}", top)
        return Top(top, (first.shape[0] + x.shape[0] - at, *x.shape[1:]))

    def embed(self, x: Top) -> Top:
        """Add an embedding of the label beside the blob."""
        outputs, embedded, top = self.random.randint(1, 4), self.name("embed"), self.name("join")
        fields = f"input_dim: {CLASSES} num_output: {outputs} {self.filler()}"
        self.add("Embed", "label", embedded, f"embed_param {{ {fields} }}")
        self.add("Concat", f"{x.name} {embedded}", top)
        return Top(top, (x.count + outputs,))

    # Losses.

    def loss(self, x: Top) -> None:
        """Add a loss over a blob, which other layers may read, too."""
        self._read.add(x.name)
        kinds = [self.softmax_loss] * 3 + [
            self.euclidean,
            self.smooth_l1,
            self.cross_entropy,
            self.hinge,
            self.contrastive,
            self.logistic,
        ]
        if len(x.shape) == 3 and x.shape[1] == x.shape[2] and self.chance(0.5):  # labels are of square images
            kinds = [self.pixels]
        self.random.choice(kinds)(x, f"loss_weight: {self.random.choice([1, 1, 0.5, 2])}")

    def settings(self) -> str:
        """Return how a loss is normalised, and the label it ignores."""
        if self._wants_statistics:
            return f"loss_param {{ normalization: {self.random.choice(['VALID', 'BATCH_SIZE', 'FULL'])} }}"
        ignored = f"ignore_label: {self.random.randrange(CLASSES)} " if self.chance(0.5) else ""
        mode = self.random.choice(["", *(f"normalization: {mode}" for mode in ("VALID", "BATCH_SIZE", "FULL", "NONE"))])
        return f"loss_param {{ {ignored}{mode} }}"

    def softmax_loss(self, x: Top, weight: str) -> None:
        """Add a softmax loss, and an accuracy."""
        x = self.inner_product(x, CLASSES)
        self.add("SoftmaxWithLoss", f"{x.name} label", self.name("loss"), weight, self.settings())
        stage = self.random.choice(["", 'stage: "other"'])
        self.add("Accuracy", f"{x.name} label", self.name("accuracy"), f"include {{ phase: TEST {stage} }}")

    def pixels(self, x: Top, weight: str) -> None:
        """Add a softmax loss of each pixel: its label is the largest of random channels."""
        side = x.shape[1]
        x, labels = self._branch(x, CLASSES), self.name("labels")
        self.add("ArgMax", self.target(CLASSES, side).name, labels, "argmax_param { axis: 1 }")
        self.add("SoftmaxWithLoss", f"{x.name} {labels}", self.name("loss"), weight, self.settings())

    def euclidean(self, x: Top, weight: str) -> None:
        """Add a Euclidean loss."""
        x = self.inner_product(x, self.random.randint(1, 3))
        self.add("EuclideanLoss", f"{x.name} {self.flat_target(x.count)}", self.name("loss"), weight)

    def smooth_l1(self, x: Top, weight: str) -> None:
        """Add a smooth L1 loss."""
        x = self.inner_product(x, self.random.randint(1, 3))
        fields = f"smooth_l1_loss_param {{ sigma: {self.random.choice([1, 3])} }}"
        self.add("SmoothL1Loss", f"{x.name} {self.flat_target(x.count)}", self.name("loss"), weight, fields)

    def flat_target(self, count: int) -> str:
        """Add a target of one axis; return its name."""
        return self.add("Flatten", self.target(count).name, self.name("flat"))

    def cross_entropy(self, x: Top, weight: str) -> None:
        """Add a sigmoid cross entropy loss."""
        x = self.inner_product(x, self.random.randint(1, 3))
        bottoms = f"{x.name} {self.flat_target(x.count)}"
        self.add("SigmoidCrossEntropyLoss", bottoms, self.name("loss"), weight)

    def hinge(self, x: Top, weight: str) -> None:
        """Add a hinge loss."""
        x = self.inner_product(x, CLASSES)
        self.add("HingeLoss", f"{x.name} label", self.name("loss"), weight, "hinge_loss_param { norm: L2 }")

    def contrastive(self, x: Top, weight: str) -> None:
        """Add a contrastive loss of two features; labels above 0 are alike."""
        outputs = self.random.randint(2, 4)
        pair = f"{self.inner_product(x, outputs).name} {self.inner_product(x, outputs).name}"
        alike = self.add("Threshold", "label", self.name("alike"), "threshold_param { threshold: 1.5 }")
        self.add("ContrastiveLoss", f"{pair} {alike}", self.name("loss"), weight)

    def logistic(self, x: Top, weight: str) -> None:
        """Add a logistic loss of probabilities."""
        chances = self.add("Softmax", self.inner_product(x, CLASSES).name, self.name("softmax"))
        self.add("MultinomialLogisticLoss", f"{chances} label", self.name("loss"), weight)


def draw_net(random: Random, batch: int, test_batch: int, statistics: bool) -> NetDraw:
    """Return a random net of 3 to 8 layers and more for data and loss."""
    net = NetDraw(random, batch, statistics)
    x = net.data(test_batch)
    depth, layers = random.randint(2, 7), 0
    auxiliary = random.randrange(depth) if net.chance(0.25) else -1
    while layers < depth:
        x = net.layer(x)
        if layers == auxiliary:
            net.loss(x)
        if len(x.shape) == 3 and (min(x.shape[1:]) < 2 or net.chance(0.2)):
            x = net.inner_product(x)
        layers += 1
    net.loss(x)
    return net
