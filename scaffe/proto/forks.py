"""Layer types, fields and values of Caffe's forks: of which fork they are, and what to use instead.

`engine: MKLDNN`, of Intel's, is no row: scaffe.layers.layer.asked_engine understands it.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from typing import NamedTuple

SSD, RCNN, RFCN = "SSD's Caffe", "Faster R-CNN's Caffe", "R-FCN's Caffe"
INTEL, NVIDIA, RISTRETTO = "Intel's Caffe", "NVCaffe", "Ristretto"
SEGNET, DEEPLAB, CRF = "SegNet's or ENet's Caffe", "DeepLab's or PSPNet's Caffe", "CRF-RNN's Caffe"
YOLO = "a Caffe with YOLO"
FACES, FLOW, POSE, OTHER = "a Caffe for faces", "FlowNet's Caffe", "OpenPose's Caffe", "a fork of Caffe"

LEAVE_OUT = "leave it out"
PYTHON = "write a Python layer in its place, which --allow-python-layers allows"
HEAD = f"use the net without its detection head, or {PYTHON}"
SCALE = "use BatchNorm, and behind it Scale with filler, bias_term: true and bias_filler"
FIVE = f"{SCALE}; weights of 5 blobs don't copy: a program must move blobs 3 and 4 to the Scale layer"
NUMBERS = "leave it out; --compute bf16 chooses numbers of 16 bits"


class Fork(NamedTuple):
    """What one fork has, and what to use instead.

    `fields` are those of the message, or the values of the enum, that stands before them with a colon; without one
    those of LayerParameter. The names of messages and fields can be patterns.
    """

    fork: str
    types: str
    fields: str
    use: str


ROWS = (
    Fork(SSD, "VideoData", "video_data_param", "store the video's frames, and use ImageData"),
    Fork(SSD, "", "SolverParameter: plateau_winsize", "use another lr_policy, such as multistep"),
    Fork(SSD, "", "TransformationParameter: noise_param",
        "leave it out, and resize by convert-imageset --resize-width W --resize-height H"),
    Fork(RCNN, "ROIAlign", "roi_align_param", PYTHON),
    Fork(RCNN, "", "DropoutParameter: scale_train",
        "leave it out, and multiply the weights of the layer behind it by 1 - dropout_ratio once"),
    Fork(RCNN, "Proposal AnchorTarget", "proposal_param", PYTHON),
    Fork(RFCN, "BoxAnnotatorOHEM DeformableConvolution DeformablePSROIPooling SmoothL1LossOHEM SoftmaxWithLossOHEM",
        "box_annotator_ohem_param deformable_convolution_param", PYTHON),
    Fork(NVIDIA, "", "BatchNormParameter: scale_filler scale_bias", FIVE),
    Fork(f"{NVIDIA} or {INTEL}", "", "BatchNormParameter: bias_filler", FIVE),
    Fork(NVIDIA, "", "NetParameter: default_* global_grad_scale* reduce_buckets", NUMBERS),
    Fork(NVIDIA, "", "forward_type backward_type forward_math backward_math", NUMBERS),
    Fork(NVIDIA, "", "SolverParameter: solver_data_type global_grad_scale*", NUMBERS),
    Fork(NVIDIA, "", "cudnn_* ConvolutionParameter: cudnn_*", "leave it out; --plan timed chooses kernels"),
    Fork(NVIDIA, "", "DataParameter: threads parser_threads cache", "leave it out; --reader-threads sets their number"),
    Fork(NVIDIA, "", "SolverParameter: *epoch*", "give max_iter and test_interval in iterations"),
    Fork(NVIDIA, "", "SolverParameter: rampup_*", "use warmup_iter and warmup_start_lr"),
    Fork(NVIDIA, "", "SolverParameter: min_lr", "leave it out, and end at an earlier max_iter"),
    Fork(NVIDIA, "", "SolverParameter: larc* local_lr_auto local_gw_ratio",
        "leave it out, and choose base_lr without it"),
    Fork(NVIDIA, "", "TransformationParameter: use_gpu_transform", LEAVE_OUT),
    Fork(NVIDIA, "", "TransformationParameter: img_rand_resize_* rand_resize_*",
        "leave it out, and prepare the images before they are converted"),
    Fork(NVIDIA, "", "SolverParameter: store_blobs_in_old_format per_parameter_reduce", LEAVE_OUT),
    Fork(NVIDIA, "DetectNetTransformation L1Loss", "detectnet_*", PYTHON),
    Fork(INTEL, "", "*.Engine: MKL2017", "write MKLDNN, or leave it out"),
    Fork(INTEL, "", "SolverParameter: engine", "leave it out; --engine chooses the engine"),
    Fork(f"{INTEL} or {NVIDIA}", "", "*: engine", 'leave it out, or give it to the layer itself, as engine: "MKLDNN"'),
    Fork(INTEL, "", "ConvolutionParameter: relu negative_slope BatchNormParameter: relu", "add a ReLU layer in place"),
    Fork(INTEL, "", "BatchNormParameter: filler use_weight_bias bias_term", FIVE),
    Fork(INTEL, "", "ConvolutionParameter: conv_algorithm NetParameter: compile_net_state bn_stats_batch_size "
        "BatchNormParameter: stats_batch_size SolverParameter: disabled_update local_*", LEAVE_OUT),
    Fork(INTEL, "", "multinode mn_* NetParameter: multinode", "leave it out; mpirun starts the ranks"),
    Fork(INTEL, "", "quantization_param split_param", LEAVE_OUT),
    Fork(INTEL, "", "DataParameter: shuffle", "leave it out; --shuffle full shuffles"),
    Fork(INTEL, "", "TransformationParameter: crop_h crop_w random_resize_param random_aspect_ratio_param",
        "leave it out, and prepare the images before they are converted"),
    Fork(INTEL, "", "LossParameter.NormalizationMode: PRE_FIXED LossParameter: pre_fixed_normalizer",
        "use normalization: NONE, and as loss_weight 1 / pre_fixed_normalizer"),
    Fork(RISTRETTO, "ConvolutionRistretto FcRistretto DeconvolutionRistretto LRNRistretto DataRistretto", "",
        "use the float32 net that it was made of"),
    Fork(DEEPLAB, "ImageSegData SegAccuracy MatWrite MatRead DenseCRF AdaptiveBiasChannel",
        "seg_accuracy_param mat_write_param mat_read_param densecrf_param", PYTHON),
    Fork(DEEPLAB, "", "ConvolutionParameter: hole hole_h hole_w", "write dilation"),
    Fork(DEEPLAB, "", "LossParameter: weight_source", f"leave it out, or {PYTHON}"),
    Fork(SEGNET, "", "LossParameter: weight_by_label_freqs class_weighting", f"leave it out, or {PYTHON}"),
    Fork(SEGNET, "DenseImageData", "dense_image_data_param",
        f"use two ImageData layers, of images and of images of labels, each with a list of its own, or {PYTHON}"),
    Fork(SEGNET, "SpatialDropout", "spatial_dropout_param",
        f"use Dropout, which drops single values, not channels, or {PYTHON}"),
    Fork(CRF, "MultiStageMeanfield", "multi_stage_meanfield_param", PYTHON),
    Fork(OTHER, "SignedSqrt CompactBilinear Bilinear", "compact_bilinear_param", PYTHON),
    Fork(OTHER, "HSwish", "", "write HardSwish"),
    Fork(OTHER, "L2Norm", "", "write L2Normalization"),
    Fork(OTHER, "ChannelShuffle", "", "write ShuffleChannel, with shuffle_channel_param"),
    Fork(OTHER, "HardSigmoid SELU Maxout", "hard_swish_param mish_param crelu_param", PYTHON),
    Fork(FACES, "", "normalize_param", "use L2Normalization, which divides each sample by its norm"),
    Fork(OTHER, "Flip Resize Pad Padding GroupNorm InstanceNorm LayerNorm Convolution3D Pooling3D", "", PYTHON),
    Fork(OTHER, "FocalLoss WeightedSoftmaxWithLoss TripletLoss", "focal_loss_param triplet_loss_param", PYTHON),
    Fork(POSE, "ImResize Nms CPMData", "imresize_param nms_param cpm_transform_param", PYTHON),
    Fork(OTHER, "", "lstm_param", "use LSTM with recurrent_param, whose weights are other blobs"),
    Fork(YOLO, "", "DetectionOutputParameter: side num_box coords biases label_map_file",
        "write type YoloDetectionOutput with yolo_detection_output_param, whose labels begin at 1"),
    Fork(YOLO, "RegionLoss RegionOutput Yolov3 Yolov3DetectionOutput", "region_loss_param yolov3_*", HEAD),
    Fork(FACES, "CenterLoss MarginInnerProduct LargeMarginInnerProduct LSoftmax LabelSpecificAdd CosinAddMargin",
        "center_loss_param margin_inner_product_param largemargin_inner_product_param", PYTHON),
    Fork(FLOW, "Correlation Correlation1D FlowWarp Resample DataAugmentation CustomData LpqLoss Downsample",
        "correlation_param flow_warp_param resample_param augmentation_param", PYTHON),
)  # fmt: skip


def of_type(kind: str) -> Fork | None:
    """Return the row of a layer type, also in V1's spelling, None where no row has it."""
    return next((row for row in ROWS if kind and _plain(kind) in map(_plain, row.types.split())), None)


def of_field(message: str, name: str) -> Fork | None:
    """Return the row of a field of a message, or of a value of an enum, None where no row has it."""
    wanted = message, name
    return next((row for row in ROWS if any(all(map(fnmatchcase, wanted, one)) for one in _fields(row))), None)


def _fields(row: Fork) -> Iterator[tuple[str, str]]:
    """Yield a row's messages and fields."""
    message = "LayerParameter"
    for word in row.fields.split():
        if word.endswith(":"):
            message = word[:-1]
        else:
            yield message, word


def _plain(kind: str) -> str:
    """Return a layer type without what its spelling in V1 changes: IMAGE_SEG_DATA is ImageSegData."""
    return kind.replace("_", "").lower()
