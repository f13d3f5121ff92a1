"""A fine-tuning, planned and written down: lists, nets and solver, which `scaffe train` takes too."""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, gcd
from typing import NamedTuple

from google.protobuf import text_format

from readers import read_mean
from readers.errors import ReaderError
from scaffe.errors import ScaffeError
from scaffe.fine_tuning import net as nets
from scaffe.fine_tuning.bundle import DEPLOY, LABELS, TRANSFORM, WEIGHTS, Prepared, write_text
from scaffe.fine_tuning.net import Base, PictureSource
from scaffe.fine_tuning.pictures import Look, Picture, Pictures, check_utf_8, find, look, mean_of, split
from scaffe.models import MODELS, Model
from scaffe.monitor.log import log
from scaffe.pictures.input_transform import chosen
from scaffe.proto import NetParameter, SolverParameter, TransformationParameter
from scaffe.proto.files import read_net, read_weights
from scaffe.training.patience import best_path

GREY, COLOUR = "lenet", "cifar10_quick"  # the nets from scratch
IMAGENET_MEAN = (104.0, 117.0, 123.0)  # B G R, as Caffe's examples have it
TRAIN_VAL, SOLVER, TRAIN, HELD_OUT = "train_val.prototxt", "solver.prototxt", "train.txt", "held_out.txt"
BATCH, TEST_BATCH = 64, 100
RATE = 0.001  # of fine-tuning; from scratch that of the net's solver
EPOCHS = 20  # at most
LEAST_STEPS = 200
LARGE = 200  # pixels of a side from which a net takes crops of larger pictures
DROP = 0.1  # of the rate, at half of the steps
COMMENT = "# Written by scaffe fine-tune; edit it as you like.\n"


@dataclass(frozen=True)
class Asked:
    """What the user has said; None where the plan decides."""

    source: str
    out: str
    net: str | None = None
    weights: str | None = None
    held_out: float = 0.2
    seed: int = 1
    batch: int | None = None
    rate: float | None = None
    epochs: int | None = None

    def check(self) -> None:
        """Raise ScaffeError for a value out of range, and an output folder that holds something else."""
        if not 0 < self.held_out < 1:
            raise ScaffeError(f"--held-out must be a share between 0 and 1, got {self.held_out:g}")
        if self.weights and not self.net:
            raise ScaffeError("--weights needs the net that has them: give --from NET, a prototxt or a name")
        for name in ("batch", "rate", "epochs"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ScaffeError(f"--{name} must be above 0, got {value:g}")
        if self.seed < 0:
            raise ScaffeError(f"--seed must be 0 or more, got {self.seed}")
        if os.path.exists(self.out) and not os.path.isdir(self.out):
            raise ScaffeError(f"--out {self.out}: is a file; name a folder")
        if os.path.isdir(self.out) and os.listdir(self.out) and not os.path.isfile(os.path.join(self.out, TRANSFORM)):
            raise ScaffeError(f"--out {self.out}: the folder holds other files; name another, or an earlier result")
        for name in (self.source, self.out):
            check_utf_8(name)
        for given in filter(None, (self.source, self.net, self.weights)):
            if os.path.dirname(os.path.realpath(given)) == os.path.realpath(self.out) and os.path.isfile(given):
                raise ScaffeError(f"--out {self.out}: it holds {given}, an input of this command; name another folder")


class Divided(NamedTuple):
    """The pictures that can be read, what was seen of them, those to train on, and those held out."""

    pictures: Pictures
    seen: Look
    train: list[Picture]
    held_out: list[Picture]


class Planned(NamedTuple):
    """What is to be trained: the solver's path, the weights to start from, and what the result needs."""

    solver: str
    weights: str | None
    classes: list[str]
    held_out: list[Picture]
    root: str


def write(asked: Asked, ranks: int) -> Planned:
    """Look at the pictures, and write all files of a fine-tuning on so many ranks. Raise ScaffeError."""
    asked.check()
    pictures, seen = look(find(asked.source))
    data = Divided(pictures, seen, *split(pictures, asked.held_out, asked.seed))
    base, model = _base(asked, seen)
    source = _source(asked, data, base, model, ranks)
    solver = _solver(asked, data, model, source)
    os.makedirs(asked.out, exist_ok=True)
    for old in (os.path.join(asked.out, WEIGHTS), best_path(solver)):  # of earlier results, whose classes may be others
        with suppress(FileNotFoundError):
            os.remove(old)
    _write_nets(asked, len(pictures.classes), base, source)
    write_text(asked.out, SOLVER, COMMENT + _text(solver))
    _write_data(asked.out, data, source)
    counts = len(pictures.classes), len(data.train), len(data.held_out)
    log.info("%d classes, %d pictures to train on, %d held out; net %s", *counts, base.param.name or base.path)
    return Planned(os.path.join(asked.out, SOLVER), asked.weights, pictures.classes, data.held_out, pictures.root)


def _base(asked: Asked, seen: Look) -> tuple[Base, Model | None]:
    """Return the net to begin with, and the model of the zoo that it is."""
    given = asked.net or (GREY if seen.grey else COLOUR)
    if os.path.exists(given) or given not in MODELS:
        if not os.path.exists(given):
            raise ScaffeError(f"--from {given}: no such prototxt, and no model of scaffe models is called so")
        return Base(read_net(given), given), None
    model = MODELS[given]
    if len(model.shape) != 3 or list(model.inputs(1)) != ["data", "label"]:
        raise ScaffeError(f"--from {given}: takes no pictures; scaffe models lists the inputs")
    return Base(model.train_val(data="input"), given), model


def _source(asked: Asked, data: Divided, base: Base, model: Model | None, ranks: int) -> PictureSource:
    """Return where pictures come from, and how they are prepared: as for the weights, or as the net's file says."""
    own = _of_weights(asked) or (TransformationParameter(**model.transform) if model else base.transform)
    shape = (model.shape if model else base.shape) or ()
    grey = shape[0] == 1 if len(shape) == 3 else data.seen.grey
    input_size = (shape[1], shape[2]) if len(shape) == 3 else (own.crop_size or data.seen.side,) * 2
    transform = TransformationParameter(scale=own.scale)
    size = input_size
    if asked.weights and size[0] == size[1] >= LARGE:  # a crop of a larger picture, as in the training of these nets
        transform.crop_size, size = size[0], (size[0] * 8 // 7,) * 2
    known = _mean(own, grey, bool(asked.weights))
    transform.mean_value.extend(known or mean_of(data.pictures.root, data.train, size, grey))
    train_list, test_list = (os.path.join(asked.out, name) for name in (TRAIN, HELD_OUT))
    return PictureSource(
        root=data.pictures.root, train_list=train_list, test_list=test_list, resize=size, grey=grey,
        transform=transform, mirror=bool(asked.weights) and not grey,
        batch=asked.batch or _batch(len(data.train), ranks), test_batch=_test_batch(len(data.held_out)),
    )  # fmt: skip


def _of_weights(asked: Asked) -> TransformationParameter | None:
    """Return how pictures were prepared for the weights, as their file says; None where it does not."""
    if not asked.weights or asked.weights.endswith(".h5"):
        return None
    known = chosen(read_weights(asked.weights).input_transform)
    if known is None:
        return None
    found = TransformationParameter()
    found.CopyFrom(known.transform_param)
    if known.mean:
        found.ClearField("mean_file")
        found.mean_value[:] = known.mean
    return found


def _mean(own: TransformationParameter, grey: bool, has_weights: bool) -> list[float] | None:
    """Return the mean that a transform says, or that of ImageNet for weights of other pictures; None: of these."""
    channels = 1 if grey else 3
    if own.mean_value:
        return list(own.mean_value) if len(own.mean_value) == channels else [own.mean_value[0]] * channels
    if own.mean_file and os.path.exists(own.mean_file):
        try:
            return [float(value) for value in read_mean(own.mean_file).mean((1, 2))]
        except ReaderError as error:
            raise ScaffeError(f"{own.mean_file}: {error}") from None
    if has_weights and not grey:
        log.info("The mean that the weights were trained with isn't known: %s is taken, ImageNet's", IMAGENET_MEAN)
        return list(IMAGENET_MEAN)
    return None


def _batch(train: int, ranks: int) -> int:
    """Return a batch that ranks divide evenly, of at most a quarter of the pictures."""
    return max(1, min(BATCH, train // 4) // ranks) * ranks


def _test_batch(held_out: int) -> int:
    """Return the size of test batches that cover the pictures held out exactly."""
    return held_out if held_out <= TEST_BATCH else gcd(held_out, TEST_BATCH)


def _write_nets(asked: Asked, classes: int, base: Base, source: PictureSource) -> None:
    """Write the two nets."""
    is_new, name = bool(asked.weights), f"{base.param.name or 'net'}_{classes}_classes"
    shape = (1 if source.grey else 3, *_input_size(source))
    made = {
        TRAIN_VAL: nets.train_val(base, source, classes, is_new, name),
        DEPLOY: nets.deploy(base, shape, classes, is_new, name),
    }
    for file, net in made.items():
        write_text(asked.out, file, COMMENT + _text(net))


def _write_data(out: str, data: Divided, source: PictureSource) -> None:
    """Write the lists, the names of the classes, and how pictures are prepared."""
    for file, some in ((TRAIN, data.train), (HELD_OUT, data.held_out)):
        write_text(out, file, "".join(f"{one.path} {one.label}\n" for one in some))
    write_text(out, LABELS, "".join(f"{one}\n" for one in data.pictures.classes))
    transform = source.transform
    write_text(out, TRANSFORM, Prepared(source.resize, source.grey, transform.mean_value, transform.scale).text())


def _input_size(source: PictureSource) -> tuple[int, int]:
    crop = source.transform.crop_size
    return (crop, crop) if crop else source.resize


def _text(message: NetParameter | SolverParameter) -> str:
    return text_format.MessageToString(message)


def _solver(asked: Asked, data: Divided, model: Model | None, source: PictureSource) -> SolverParameter:
    """Return a solver of as many epochs as the plan has, with a test after each, whose best one is kept."""
    starts = bool(asked.weights)
    epoch = ceil(len(data.train) / source.batch)
    steps = epoch * asked.epochs if asked.epochs else max(LEAST_STEPS, epoch * EPOCHS)
    fields = model.solver_fields if model and not starts else {}
    rate = asked.rate or fields.get("base_lr", RATE if starts else 0.01)
    return SolverParameter(
        net=os.path.join(asked.out, TRAIN_VAL), base_lr=rate, lr_policy="multistep", gamma=DROP,
        stepvalue=[max(1, steps // 2)], momentum=0.9, weight_decay=fields.get("weight_decay", 0.0005),
        max_iter=steps, display=max(1, epoch // 4), test_interval=epoch,
        test_iter=[len(data.held_out) // source.test_batch],
        test_initialization=False, snapshot_prefix=os.path.join(asked.out, "snapshot"), snapshot_after_train=False,
        random_seed=asked.seed,
    )  # fmt: skip
