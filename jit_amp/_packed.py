"""The weights of an artefact for servers, in the layout that oneDNN computes with."""

from typing import List, Tuple  # noqa: UP035  (TorchScript's)

import torch
from torch import Tensor, nn


class Packed(nn.Module):
    """Saves weights as they are, and packs them when it is made and when it is loaded.

    It is scripted, and becomes a submodule of the artefact (csrc/passes/pack_weights.h). A plan has
    the number of rows of a linear layer's input; or a convolution's padding, stride, dilation,
    groups and its input's four sizes.
    """

    plain: List[Tensor]  # noqa: UP006
    packed: List[Tensor]  # noqa: UP006
    plans: List[List[int]]  # noqa: UP006

    def __init__(self, plain: list[Tensor], plans: list[list[int]]) -> None:
        super().__init__()
        self.plain, self.plans = plain, plans
        self.packed = [plain[0]]  # an empty list has no type

    @torch.jit.export
    def pack(self) -> None:
        packed: List[Tensor] = []  # noqa: UP006
        for i in range(len(self.plain)):
            packed.append(self.packed_one(self.plain[i], self.plans[i]))
        self.packed = packed

    def packed_one(self, weight: Tensor, plan: List[int]) -> Tensor:  # noqa: UP006
        if weight.dtype == torch.bfloat16:
            supported = torch.ops.mkldnn._is_mkldnn_bf16_supported()
        else:
            supported = torch.ops.mkldnn._is_mkldnn_fp16_supported()
        if not supported or not weight.is_cpu:
            return weight
        if len(plan) == 1:
            linear: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight, plan[0])
            return linear
        convolution: Tensor = torch.ops.mkldnn._reorder_convolution_weight(
            weight, plan[0:2], plan[2:4], plan[4:6], plan[6], plan[7:11]
        )
        return convolution

    @torch.jit.export
    def __getstate__(self) -> Tuple[List[Tensor], List[List[int]], bool]:  # noqa: UP006
        return self.plain, self.plans, self.training

    @torch.jit.export
    def __setstate__(self, state: Tuple[List[Tensor], List[List[int]], bool]) -> None:  # noqa: UP006
        self.plain, self.plans, self.training = state
        self.packed = self.plain
        self.pack()
