"""The weights of a frozen module for servers, in the form that the processor computes with."""

from typing import Final, List, Tuple  # noqa: UP035  (TorchScript's)

import torch
from torch import Tensor, nn

from jit_amp import _C

LARGE_WEIGHT: int = _C.thresholds()["kLargeWeight"]
"""Elements. Of fewer, a weight stays a constant of the graph as well."""


def emulates(dtype: torch.dtype) -> bool:
    """Whether the processor at hand has no instructions for the dtype."""
    return not Packed([], []).computes_in(dtype)


class Packed(nn.Module):
    """Saves weights as they are; holds each once, as the processor wants it.

    It is scripted, and becomes a submodule of the frozen module (passes/server/pack_weights.h).
    When it is made and when it is loaded it asks the processor, and takes the weights one by one:

    - where it computes in their dtype, weights that have a plan are packed in oneDNN's layout;
    - where it emulates the dtype, they are widened to float32, but for small ones, and those of
      linear layers that had a few rows in the example;
    - elsewhere, and where one is not on a CPU, they stay as they are.

    It asks for float16 only where ``asks_float16`` says so, because PyTorch 2.1 has no operator
    that tells: a file that is loaded there must not name it.

    A plan has the number of rows of a linear layer's input; or a convolution's padding, stride,
    dilation, groups and its input's four sizes; or nothing.
    """

    large_weight: Final[int] = LARGE_WEIGHT
    few_rows: Final[int] = _C.thresholds()["kFewRows"]
    asks_float16: Final[bool]
    weights: List[Tensor]  # noqa: UP006
    dtypes: List[int]  # noqa: UP006
    shapes: List[List[int]]  # noqa: UP006
    plans: List[List[int]]  # noqa: UP006
    native_bfloat16: bool
    native_float16: bool
    emulated_bfloat16: bool
    emulated_float16: bool
    slow_kernel: bool

    def __init__(
        self, weights: list[Tensor], plans: list[list[int]], asks_float16: bool = True
    ) -> None:
        super().__init__()
        self.asks_float16 = asks_float16
        self.weights, self.plans, self.dtypes, self.shapes = weights, plans, [], []
        self.native_bfloat16 = self.native_float16 = False
        self.emulated_bfloat16 = self.emulated_float16 = False
        self.slow_kernel = False

    @torch.jit.export
    def pack(self) -> None:
        self.dtypes = [weight.dtype for weight in self.weights]
        self.shapes = [weight.size() for weight in self.weights]
        for weight in self.weights:
            if not weight.is_cpu:
                return
        self.native_bfloat16 = self.computes_in(torch.bfloat16)
        self.native_float16 = self.computes_in(torch.float16)
        self.emulated_bfloat16 = not self.native_bfloat16
        self.emulated_float16 = not self.native_float16
        self.slow_kernel = self.native_bfloat16 and not self.kernel_has_instructions()
        for i in range(len(self.weights)):
            self.weights[i] = self.packed_one(self.weights[i], self.plans[i])

    @torch.jit.export
    def unpack(self) -> None:
        """Plain weights, for code that any processor runs."""
        for i in range(len(self.weights)):
            self.weights[i] = self.dense(i)
        self.native_bfloat16 = False
        self.native_float16 = False
        self.emulated_bfloat16 = False
        self.emulated_float16 = False
        self.slow_kernel = False

    @torch.jit.export
    def dense(self, i: int) -> Tensor:
        """Returns a weight as it is saved."""
        weight = self.weights[i]
        if weight.is_mkldnn:
            weight = weight.to_dense().view(self.shapes[i])
            if len(self.plans[i]) > 1:
                # `contiguous` would leave a 1x1 weight in strides that pass for the default ones.
                weight = weight.to(weight.dtype, memory_format=torch.channels_last)
        return self.converted(weight, self.dtypes[i])

    def converted(self, x: Tensor, dtype: int) -> Tensor:
        converted: Tensor = x.to(dtype)
        return converted

    def packed_one(self, weight: Tensor, plan: List[int]) -> Tensor:  # noqa: UP006
        bfloat16 = weight.dtype == torch.bfloat16
        if self.emulated_bfloat16 if bfloat16 else self.emulated_float16:
            few = len(plan) == 1 and plan[0] < self.few_rows
            small = weight.dim() == 2 and weight.numel() < self.large_weight
            return weight if few or small else weight.to(torch.float32)
        if len(plan) == 0:
            return weight
        if len(plan) == 1:
            linear: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, plan[0])
            return linear
        convolution: Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            weight, plan[0:2], plan[2:4], plan[4:6], plan[6], plan[7:11]
        )
        return convolution

    def computes_in(self, dtype: int) -> bool:
        """Whether the processor computes in the dtype faster than it does in float32.

        oneDNN's answer for bfloat16 is yes on all processors with AVX-512. Those without
        AVX512-BF16 take longer for it than for float32, so there a product tells.
        """
        supported = False
        if dtype == torch.bfloat16:
            supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
            if supported and "AVX512" in torch.ops.aten._get_cpu_capability():
                return self.has_instructions()
        elif self.asks_float16:
            supported = torch.ops.mkldnn._is_mkldnn_fp16_supported()
        return supported

    def has_instructions(self) -> bool:
        """Whether products in bfloat16 are computed by instructions for it, AVX512-BF16's or AMX's.

        These take operands for zero that are smaller than the smallest normal number. float32's,
        which compute them elsewhere, do so only in threads that have been told to
        (``torch.set_flush_denormal``), where the answer is oneDNN's.
        """
        small = torch.full([64, 64], 2.0**-130, dtype=torch.float32)
        large = torch.full([64, 64], 2.0**10, dtype=torch.float32)
        made = torch.mm(
            self.converted(small, torch.bfloat16), self.converted(large, torch.bfloat16)
        )
        return not bool(small.mul(2.0**10).any()) or not bool(made.any())

    def kernel_has_instructions(self) -> bool:
        """Whether PyTorch's kernel of attention computes in bfloat16, too. It takes MKL's products,
        which for processors of AMD are float32's. Found out as in has_instructions: the
        instructions take such a small query for zero, so that both keys weigh one half; in float32
        the first key weighs nearly all."""
        q, k, v = (
            torch.full([1, 1, 1, 64], 2.0**-130, dtype=torch.float32),
            torch.zeros([1, 1, 2, 64], dtype=torch.float32),
            torch.zeros([1, 1, 2, 64], dtype=torch.float32),
        )
        k[0, 0, 0], v[0, 0, 0] = 2.0**127, 1.0
        if not bool(q.mul(2.0**10).any()):
            return True
        made = torch.nn.functional.scaled_dot_product_attention(
            self.converted(q, torch.bfloat16),
            self.converted(k, torch.bfloat16),
            self.converted(v, torch.bfloat16),
            scale=1.0,
        )
        return float(made.amax()) < 0.75

    @torch.jit.export
    def __getstate__(self) -> Tuple[List[Tensor], List[List[int]], bool]:  # noqa: UP006
        plain: List[Tensor] = []  # noqa: UP006
        for i in range(len(self.weights)):
            plain.append(self.dense(i))
        return plain, self.plans, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[List[Tensor], List[List[int]], bool]) -> None:  # noqa: UP006
        self.weights, self.plans, self.training = state
        self.pack()
