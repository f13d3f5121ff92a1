"""Random deploy nets of all the layers that `scaffe export-onnx` writes, each with values near 1."""

from __future__ import annotations

from random import Random

SMOOTH = (
    "AbsVal",
    "BNLL",
    "ELU",
    "Sigmoid",
    "TanH",
    "Swish",
    "PReLU",
    "Dropout",
    "ReLU",
    "Clip",
    "Exp",
    "Log",
    "Power",
)
FIELDS = {
    "Clip": ("clip_param { min: -0.5 max: 0.6 }",),
    "ELU": ("", "elu_param { alpha: 0.5 }"),
    "Exp": ("exp_param { scale: 0.3 }", "exp_param { base: 2 scale: 0.5 shift: -1 }"),
    "Log": ("log_param { base: 2 scale: 0.01 shift: 3 }", "log_param { scale: 0.01 shift: 2 }"),
    "Power": (
        "power_param { scale: 0.5 shift: 0.1 }",
        "power_param { power: 2 }",
        "power_param { power: 0 }",
        "power_param { power: 3 scale: 0.5 shift: 0.2 }",
    ),
    "PReLU": ("", "prelu_param { channel_shared: true }"),
    "ReLU": ("", "relu_param { negative_slope: 0.1 }"),
    "Swish": ("", "swish_param { beta: 2 }"),
}
REDUCED = "MEAN", "SUMSQ", "ASUM", "SUM"
FILLER = 'weight_filler { type: "xavier" } bias_filler { type: "uniform" min: -0.5 max: 0.5 }'


class DeployDraw:
    """Draws a net; `text` is its prototxt. A blob is its name and its shape without the batch."""

    def __init__(self, seed: int):
        self.random = Random(seed)
        self.lines: list[str] = []
        self.count = 0
        side = self.random.choice([5, 6, 9])
        shape = (self.random.choice([2, 4]), side, side + self.random.choice([0, 1]))
        dims = " ".join(f"dim: {n}" for n in (2, *shape))
        self.lines.append(f'layer {{ name: "data" type: "Input" top: "data" input_param {{ shape {{ {dims} }} }} }}')
        x = ("data", shape)
        for _ in range(self.random.randint(3, 9)):
            x = self.layer(*x)
        self.end(*x)
        self.text = "\n".join(self.lines)

    def add(self, kind, bottoms, fields="", tops=1, in_place=False):
        """Add a layer; return the names of its tops."""
        self.count += 1
        name = f"{kind.lower()}{self.count}"
        names = [bottoms[0]] if in_place else [name if tops == 1 else f"{name}_{i}" for i in range(tops)]
        blobs = " ".join([f'bottom: "{b}"' for b in bottoms] + [f'top: "{t}"' for t in names])
        self.lines.append(f'layer {{ name: "{name}" type: "{kind}" {blobs} {fields} }}')
        return names[0] if tops == 1 else names

    def layer(self, x, shape):
        """Add a layer or a few; return the last top and its shape."""
        kinds = [self.activation, self.scale, self.fork, self.normalisation, self.reshaped]
        if len(shape) == 3:
            kinds += [
                self.convolution,
                self.deconvolution,
                self.pooling,
                self.pooling,
                self.lrn,
                self.crop,
                self.unfold,
            ]
        else:
            kinds += [self.product]
        return self.random.choice(kinds)(x, shape)

    def activation(self, x, shape):
        kind = self.random.choice(SMOOTH)
        fields = self.random.choice(FIELDS.get(kind, ("",)))
        return self.add(kind, [x], fields, in_place=x != "data" and self.random.random() < 0.5), shape

    def scale(self, x, shape):
        how = self.random.randrange(4)
        if how == 0:
            return self.add(
                "Scale", [x], "scale_param { bias_term: true filler { type: 'uniform' min: 0.5 max: 1.5 } }"
            ), shape
        if how == 1:
            return self.add("Bias", [x], "bias_param { filler { type: 'uniform' } }"), shape
        if how == 2:
            gate = (
                self.add(
                    "Reduction",
                    [x],
                    f"reduction_param {{ axis: 2 operation: {self.random.choice(REDUCED)} coeff: 0.1 }}",
                )
                if len(shape) > 1
                else x
            )
            return self.add("Scale", [x, gate], "scale_param { axis: 0 }"), shape
        factor = f"factor{self.count}"
        self.lines.append(
            f'layer {{ name: "{factor}" type: "Parameter" top: "{factor}" '
            f"parameter_param {{ shape {{ dim: {shape[0]} }} }} }}"
        )
        return self.add("Bias", [x, factor]), shape

    def fork(self, x, shape):
        a, b = (self.activation(x, shape)[0] if x == "data" else self.add("TanH", [x]) for _ in range(2))
        how = self.random.choice(["Concat", "SUM", "SUM coeff: 0.5 coeff: -2", "PROD", "MAX", "Slice", "Tile"])
        if how == "Concat":
            return self.add("Concat", [a, b]), (2 * shape[0], *shape[1:])
        if how == "Slice" and shape[0] > 1:
            parts = self.add("Slice", [a], "slice_param { slice_point: 1 }", tops=2)
            return parts[1], (shape[0] - 1, *shape[1:])
        if how == "Tile" and shape[0] < 8:
            return self.add("Tile", [b], "tile_param { tiles: 2 }"), (2 * shape[0], *shape[1:])
        how = how if how[0] in "SPM" and how not in ("Slice",) else "SUM"
        return self.add("Eltwise", [a, b], f"eltwise_param {{ operation: {how} }}"), shape

    def normalisation(self, x, shape):
        kind = self.random.choice(["BatchNorm", "MVN", "Softmax", "BatchNorm2"])
        if kind == "MVN" and len(shape) > 1:
            across = self.random.choice(["true", "false"])
            return self.add("MVN", [x], f"mvn_param {{ eps: 0.1 across_channels: {across} }}"), shape
        if kind == "Softmax":
            axis = self.random.choice([1, -1])
            return self.add("Softmax", [x], f"softmax_param {{ axis: {axis} }}"), shape
        own = "use_global_stats: false" if kind == "BatchNorm2" else ""
        return self.add("BatchNorm", [x], f"batch_norm_param {{ eps: 0.1 {own} }}"), shape

    def reshaped(self, x, shape):
        if len(shape) == 1 or self.random.random() < 0.7:
            return x, shape
        if self.random.random() < 0.5:
            return self.add("Flatten", [x]), (shape[0] * shape[1] * shape[2],)
        fields = "reshape_param { shape { dim: 0 dim: 0 dim: -1 dim: 1 } }"
        return self.add("Reshape", [x], fields), (shape[0], shape[1] * shape[2], 1)

    def window(self, shape, most=3):
        """Return a kernel, a stride and a pad for each side of an image."""
        kernel = [self.random.randint(1, min(most, n)) for n in shape[1:]]
        stride = [self.random.randint(1, 3) for _ in kernel]
        return kernel, stride, [self.random.randint(0, k - 1) for k in kernel]

    def convolution(self, x, shape):
        kernel, stride, pad = self.window(shape)
        dilation = (
            2
            if all(2 * (k - 1) < n for k, n in zip(kernel, shape[1:], strict=True)) and self.random.random() < 0.3
            else 1
        )
        group = 2 if shape[0] % 2 == 0 and self.random.random() < 0.4 else 1
        outputs = 2 * self.random.randint(1, 3)
        bias = self.random.choice(["true", "false"])
        fields = f"num_output: {outputs} group: {group} dilation: {dilation} {FILLER} bias_term: {bias} " + _window(
            kernel, stride, pad
        )
        sides = (_out(n, k, s, p, dilation) for n, k, s, p in zip(shape[1:], kernel, stride, pad, strict=True))
        return self.add("Convolution", [x], f"convolution_param {{ {fields} }}"), (outputs, *sides)

    def deconvolution(self, x, shape):
        if shape[1] * shape[2] > 60:
            return self.convolution(x, shape)
        kernel, stride = [self.random.randint(1, 3) for _ in "hw"], [self.random.randint(1, 2) for _ in "hw"]
        dilation = self.random.choice([1, 2])
        group = 2 if shape[0] % 2 == 0 and self.random.random() < 0.5 else 1
        fields = f"num_output: 4 group: {group} dilation: {dilation} {FILLER} " + _window(kernel, stride, [0, 0])
        sides = (s * (n - 1) + dilation * (k - 1) + 1 for n, k, s in zip(shape[1:], kernel, stride, strict=True))
        return self.add("Deconvolution", [x], f"convolution_param {{ {fields} }}"), (4, *sides)

    def pooling(self, x, shape):
        how = self.random.randrange(10)
        if how == 0:
            method = self.random.choice(["MAX", "AVE"])
            return self.add("Pooling", [x], f"pooling_param {{ pool: {method} global_pooling: true }}"), (
                shape[0],
                1,
                1,
            )
        if how == 1 and min(shape[1:]) > 4:
            method = self.random.choice(["MAX", "AVE"])
            top = self.add("SPP", [x], f"spp_param {{ pyramid_height: 2 pool: {method} }}")
            return top, (5 * shape[0],)
        kernel, stride, pad = self.window(shape, 4)
        stride = [min(s, k) for s, k in zip(stride, kernel, strict=True)]
        method, mode = self.random.choice(["MAX", "AVE", "AVE", "STOCHASTIC"]), self.random.choice(["CEIL", "FLOOR"])
        if method == "STOCHASTIC":
            x, pad = self.add("Sigmoid", [x]), [0, 0]
        fields = f"pool: {method} round_mode: {mode} " + _window(kernel, stride, pad)
        rounded = {"CEIL": lambda n, s: -(-n // s), "FLOOR": lambda n, s: n // s}[mode]
        sides = []
        for n, k, s, p in zip(shape[1:], kernel, stride, pad, strict=True):
            count = rounded(n + 2 * p - k, s) + 1
            sides.append(count - (any(pad) and (count - 1) * s >= n + p))
        tops = 2 if method == "MAX" and self.random.random() < 0.3 else 1
        names = self.add("Pooling", [x], f"pooling_param {{ {fields} }}", tops=tops)
        return (names if tops == 1 else names[0]), (shape[0], *sides)

    def lrn(self, x, shape):
        region, size = self.random.choice(["ACROSS_CHANNELS", "WITHIN_CHANNEL"]), self.random.choice([1, 3, 5])
        return self.add(
            "LRN", [x], f"lrn_param {{ local_size: {size} alpha: 0.5 norm_region: {region} k: 1.5 }}"
        ), shape

    def crop(self, x, shape):
        small = self.add("Pooling", [x], "pooling_param { pool: MAX kernel_size: 2 }") if min(shape[1:]) > 2 else x
        sides = [n - 1 if small != x else n for n in shape[1:]]
        offset = 1 if small != x else 0
        return self.add("Crop", [x, small], f"crop_param {{ axis: 2 offset: {offset} }}"), (shape[0], *sides)

    def unfold(self, x, shape):
        if shape[0] > 4 or min(shape[1:]) < 2:
            return x, shape
        fields = "convolution_param { kernel_size: 2 }"
        return self.add("Im2col", [x], fields), (4 * shape[0], shape[1] - 1, shape[2] - 1)

    def product(self, x, shape):
        outputs, transposed = self.random.randint(1, 9), self.random.choice(["true", "false"])
        return self.add(
            "InnerProduct", [x], f"inner_product_param {{ num_output: {outputs} transpose: {transposed} {FILLER} }}"
        ), (outputs,)

    def end(self, x, shape):
        """Add scores, and perhaps their indices."""
        axis = self.random.choice([1, -1])
        x = self.add("InnerProduct", [x], f"inner_product_param {{ num_output: 6 axis: {axis} {FILLER} }}")
        x = self.add("Softmax", [x], "softmax_param { axis: -1 }")
        if self.random.random() < 0.3:
            self.add("ArgMax", [x], "argmax_param { axis: -1 top_k: 2 out_max_val: true }")


def _window(kernel, stride, pad):
    fields = (("kernel", kernel), ("stride", stride), ("pad", pad))
    return " ".join(f"{field}_{side}: {n}" for field, pair in fields for side, n in zip("hw", pair, strict=True))


def _out(n, kernel, stride, pad, dilation):
    return (n + 2 * pad - dilation * (kernel - 1) - 1) // stride + 1
