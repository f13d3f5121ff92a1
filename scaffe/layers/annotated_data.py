"""AnnotatedData: batches of pictures with boxes."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from readers import BatchFiller, ReaderError, RecordError, Transform
from readers.annotated import open_annotated
from readers.annotated_batches import AnnotatedBatches
from readers.box_sampling import BoxChanges, Sampler
from readers.distortion import Distortion
from scaffe.blob import Blob, on_host
from scaffe.layers.base_data import OF_BOXES, PrefetchingData
from scaffe.layers.layer import Blobs, register
from scaffe.proto.caffe_pb2 import BatchSampler


class AnnotatedData(PrefetchingData):
    """Read pictures and their boxes from a database of AnnotatedDatums, or from a list of pictures and annotations.

    Tops: pictures (n x C x h x w), resized by `resize_param`, mirrored and transformed; boxes (1 x 1 x K x 8): picture,
    label, instance, xmin, ymin, xmax, ymax, difficult, corners relative to the picture; a row of -1 where there are
    none. n is this rank's share of batch_size, and `picture` counts its rows. `distort_param` changes the colours of
    pictures, `expand_param` puts them on larger canvases, a `batch_sampler` cuts parts out. A list's lines have a
    picture and an annotation in VOC's XML, relative to the list's folder; `label_map_file` has the labels of its
    classes. Liu et al. 2016, section 2.2.
    """

    tops = (2, 2)
    reshapes_always = True

    def setup(self, bottom: Blobs, top: Blobs) -> None:
        data, param = self.param.data_param, self.param.annotated_data_param
        self._transform = self.transform()
        self._changes, self._size = self._box_changes(), self._new_size()
        self._rows = Blob(xp=self.xp)
        try:
            self._source = open_annotated(self.named(data.source), param.label_map_file)
            self.take_part(len(self._source), data.batch_size, self.skip(data.rand_skip))
            self.look_ahead()
        except ReaderError as error:
            raise self.error(str(error)) from None

    def transform(self) -> Transform:
        given = self.param.transform_param
        if given.crop_size or given.mean_file:
            raise self.error("transform_param has crop_size or mean_file; give batch_sampler, or mean_value")
        plain = type(given)()
        plain.CopyFrom(given)
        for name in OF_BOXES:
            plain.ClearField(name)
        return self.transform_of(plain)

    def _new_size(self) -> tuple[int, int] | None:
        """Return the size that pictures are resized to, height and width, None where they are not."""
        param = self.param.transform_param.resize_param
        if not self.param.transform_param.HasField("resize_param"):
            return None
        if param.resize_mode != param.WARP or param.prob != 1:
            raise self.error("resize_param has another resize_mode than WARP, or a prob; WARP of all pictures is here")
        if not param.height or not param.width:
            raise self.error(f"resize_param needs height and width, got {param.height} and {param.width}")
        return param.height, param.width

    def _box_changes(self) -> BoxChanges:
        given = self.param.transform_param
        expand, emit = given.expand_param, given.emit_constraint
        return BoxChanges(
            [self._sampler(one) for one in self.param.annotated_data_param.batch_sampler],
            (expand.prob, expand.max_expand_ratio) if given.HasField("expand_param") else (0, 1),
            tuple(given.mean_value),
            emit.emit_overlap if given.HasField("emit_constraint") and emit.emit_type == emit.MIN_OVERLAP else None,
            self._distortion() if given.HasField("distort_param") else None,
        )

    def _distortion(self) -> Distortion:
        given = self.param.transform_param.distort_param
        for kind in ("contrast", "saturation"):
            if not 0 <= getattr(given, f"{kind}_lower") <= getattr(given, f"{kind}_upper"):
                raise self.error(f"distort_param has {kind}_lower below 0, or above {kind}_upper")
        return Distortion(
            (given.brightness_prob, given.brightness_delta),
            (given.contrast_prob, given.contrast_lower, given.contrast_upper),
            (given.saturation_prob, given.saturation_lower, given.saturation_upper),
            (given.hue_prob, given.hue_delta),
            given.random_order_prob,
        )

    def _sampler(self, given: BatchSampler) -> Sampler:
        part, must = given.sampler, given.sample_constraint

        def limits(name: str) -> tuple[float | None, float | None]:
            pair = [
                getattr(must, f"{end}_{name}") if must.HasField(f"{end}_{name}") else None for end in ("min", "max")
            ]
            return pair[0], pair[1]

        if not 0 < part.min_scale <= part.max_scale <= 1 or not 0 < part.min_aspect_ratio <= part.max_aspect_ratio:
            raise self.error("a sampler has a min above its max, a scale above 1, or a scale or aspect ratio of 0")
        most = given.max_sample if given.HasField("max_sample") else None
        return Sampler(
            (part.min_scale, part.max_scale),
            (part.min_aspect_ratio, part.max_aspect_ratio),
            limits("jaccard_overlap"),
            limits("sample_coverage"),
            limits("object_coverage"),
            most,
            given.max_trials,
        )

    def reading(self) -> BatchFiller:
        transform = replace(self._transform, seed=self.context.seed)
        return self.passing_over(
            lambda first: AnnotatedBatches(self._source, self.ordered(), transform, self._changes, self._size, first)
        )

    def reshape(self, bottom: Blobs, top: Blobs) -> None:
        super().reshape(bottom, [top[0], self._rows])
        if not top[1].shape:
            top[1].reshape(1, 1, 1, 8)

    def feed(self) -> None:
        try:
            super().feed()
        except RecordError as error:
            raise RecordError(f"layer '{self.name}' ({self.type}): {error}") from None

    def forward(self, bottom: Blobs, top: Blobs) -> None:
        super().forward(bottom, [top[0], self._rows])
        rows = on_host(self._rows.array)
        there = rows[:, :, 0] >= 0
        found = rows[there] if there.any() else np.full((1, 8), -1, np.float32)
        if there.any():
            found[:, 0] = np.nonzero(there)[0]
        top[1].reshape(1, 1, *found.shape)
        top[1].array[...] = self.xp.asarray(found)


register("AnnotatedData", AnnotatedData)
