"""A processor that computes in bfloat16, for machines that have none.

oneDNN's operators for fused layers and packed weights are replaced by stock arithmetic in PyTorch's
dispatcher. What is packed is an mkldnn tensor, as it is on such a processor: it cannot be saved.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from jit_amp._freeze import freeze
from jit_amp._freeze.packed import Packed


class OnProcessor(Packed):
    """Weights on a processor that says that it computes in bfloat16."""

    def computes_in(self, dtype: int) -> bool:
        supported: bool = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        return supported and dtype == torch.bfloat16


class OnOldProcessor(Packed):
    """Weights on a processor that computes in float32 alone."""

    def computes_in(self, dtype: int) -> bool:
        return False


class WithFastKernel(Packed):
    def kernel_has_instructions(self) -> bool:
        return True


class WithSlowKernel(Packed):
    def kernel_has_instructions(self) -> bool:
        return False


@contextlib.contextmanager
def kernel(slow: bool) -> Iterator[None]:
    """Where PyTorch's kernel of attention computes with bfloat16's instructions, or does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freeze, "Packed", WithSlowKernel if slow else WithFastKernel)
        yield


@contextlib.contextmanager
def old_processor() -> Iterator[None]:
    """A processor that emulates reduced dtypes, for machines whose processor does not."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freeze, "Packed", OnOldProcessor)
        yield


def _plain(weight: Tensor) -> Tensor:
    return weight.to_dense().bfloat16() if weight.is_mkldnn else weight


def _activated(y: Tensor, name: str) -> Tensor:
    return {"none": lambda t: t, "relu": F.relu, "gelu": F.gelu}[name](y)


def _linear(
    x: Tensor, weight: Tensor, bias: Any, attr: str, scalars: Any, algorithm: Any
) -> Tensor:
    return _activated(F.linear(x, _plain(weight), bias), attr)


def _convolution(
    x: Tensor,
    weight: Tensor,
    bias: Any,
    padding: Any,
    stride: Any,
    dilation: Any,
    groups: int,
    attr: str,
    scalars: Any,
    algorithm: Any,
) -> Tensor:
    return _activated(F.conv2d(x, _plain(weight), bias, stride, padding, dilation, groups), attr)


def _packed(weight: Tensor, *_: Any) -> Tensor:
    return weight.float().contiguous().to_mkldnn()


@contextlib.contextmanager
def bfloat16_processor() -> Iterator[None]:
    library = torch.library.Library("mkldnn", "IMPL")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PyTorch tells that it has kernels already
        library.impl(
            "_is_mkldnn_bf16_supported",
            lambda: True,
            "CompositeImplicitAutograd",
            allow_override=True,
        )
        for key in ("CPU", "MkldnnCPU"):
            library.impl("_linear_pointwise", _linear, key, allow_override=True)
            library.impl("_convolution_pointwise", _convolution, key, allow_override=True)
            library.impl("_reorder_linear_weight", _packed, key, allow_override=True)
            library.impl("_reorder_convolution_weight", _packed, key, allow_override=True)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(freeze, "Packed", OnProcessor)
            yield
    finally:
        library._destroy()
