"""Stands in for `torchvision.extension`, which loads torchvision's compiled operators.

Its wheel's are for a build of PyTorch with CUDA. torchvision's Python code needs to find all of
them declared; what its models call when they run, `nms` and `roi_align`, has a kernel here. What
autocast does to the two is torchvision's own code, which it registers where it finds the operators.

`import torchvision_extension` comes before `import torchvision`.
"""

from __future__ import annotations

import sys

import torch
import torch.nn.functional as F
from torch import Tensor

_ROIS = "Tensor input, Tensor rois, float spatial_scale, SymInt pooled_height, SymInt pooled_width"
_GRAD = _ROIS.replace("Tensor input", "Tensor grad")
_SIZES = "SymInt batch_size, SymInt channels, SymInt height, SymInt width"
_CONV = (
    "Tensor input, Tensor weight, Tensor offset, Tensor mask, Tensor bias, SymInt stride_h, "
    "SymInt stride_w, SymInt pad_h, SymInt pad_w, SymInt dilation_h, SymInt dilation_w, "
    "SymInt groups, SymInt offset_groups, bool use_mask"
)
_GRAD_MAPPED = _GRAD.replace("Tensor rois", "Tensor rois, Tensor channel_mapping")
_OPERATORS = (
    "nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    "qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor",
    f"roi_align({_ROIS}, int sampling_ratio, bool aligned) -> Tensor",
    f"qroi_align({_ROIS}, int sampling_ratio, bool aligned) -> Tensor",
    f"_roi_align_backward({_GRAD}, {_SIZES}, int sampling_ratio, bool aligned) -> Tensor",
    f"roi_pool({_ROIS}) -> (Tensor, Tensor)",
    f"_roi_pool_backward({_GRAD.replace('rois', 'rois, Tensor argmax')}, {_SIZES}) -> Tensor",
    f"ps_roi_align({_ROIS}, int sampling_ratio) -> (Tensor, Tensor)",
    f"_ps_roi_align_backward({_GRAD_MAPPED}, int sampling_ratio, {_SIZES}) -> Tensor",
    f"ps_roi_pool({_ROIS}) -> (Tensor, Tensor)",
    f"_ps_roi_pool_backward({_GRAD_MAPPED}, {_SIZES}) -> Tensor",
    f"deform_conv2d({_CONV}) -> Tensor",
    f"_deform_conv2d_backward(Tensor grad, {_CONV})"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    "box_iou_rotated(Tensor boxes1, Tensor boxes2) -> Tensor",
)  # fmt: skip


def nms(boxes: Tensor, scores: Tensor, threshold: float) -> Tensor:
    """The boxes, best first, that overlap no better one by more than `threshold`."""
    order = scores.sort(descending=True, stable=True).indices
    boxes = boxes[order]
    low = torch.maximum(boxes[:, None, :2], boxes[None, :, :2])
    high = torch.minimum(boxes[:, None, 2:], boxes[None, :, 2:])
    shared = (high - low).clamp(min=0).prod(-1)
    areas = (boxes[:, 2:] - boxes[:, :2]).prod(-1)
    overlaps = shared / (areas[:, None] + areas[None, :] - shared) > threshold
    dropped = torch.zeros(len(boxes), dtype=torch.bool)
    for i in range(len(boxes)):
        if not dropped[i]:
            dropped[i + 1 :] |= overlaps[i, i + 1 :]
    return order[~dropped]


def roi_align(
    features: Tensor,
    rois: Tensor,
    scale: float,
    height: int,
    width: int,
    sampling_ratio: int,
    aligned: bool,
) -> Tensor:
    """Means of `sampling_ratio` squared samples in each cell of a grid over each region."""
    count = max(sampling_ratio, 1)
    result = features.new_empty((len(rois), features.shape[1], height, width))
    for image in range(len(features)):
        here = (rois[:, 0] == image).nonzero()[:, 0]
        if not len(here):
            continue
        low = rois[here, 1:3] * scale - 0.5 * aligned
        size = rois[here, 3:5] * scale - 0.5 * aligned - low
        if not aligned:
            size = size.clamp(min=1)
        # Positions of samples in units of pixels, whose centres grid_sample has at 1/2.
        x, y = (
            low[:, i, None] + size[:, i, None] * ((torch.arange(n * count) + 0.5) / (n * count))
            for i, n in ((0, width), (1, height))
        )
        x = (2 * x + 1) / features.shape[3] - 1
        y = (2 * y + 1) / features.shape[2] - 1
        grid = torch.stack(torch.broadcast_tensors(x[:, None, :], y[:, :, None]), -1)
        samples = F.grid_sample(
            features[image, None], grid.flatten(0, 1)[None], padding_mode="border",
            align_corners=False,
        )  # fmt: skip
        means = F.avg_pool2d(samples, count).unflatten(2, (len(here), height))
        result[here] = means[0].transpose(0, 1)
    return result


def _has_ops() -> bool:
    return True


def _assert_has_ops() -> None:
    pass


def _load_library(name: str) -> bool:
    return False


def _check_cuda_version() -> int:
    return -1


_library = torch.library.Library("torchvision", "DEF")
for _operator in _OPERATORS:
    _library.define(_operator)
_library.impl("nms", nms, "CPU")
_library.impl("roi_align", roi_align, "CPU")
sys.modules["torchvision.extension"] = sys.modules[__name__]
