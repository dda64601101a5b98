// CUDA's fp32_append_dtype of ATen/autocast_mode.h: the overload with a dtype, called with float32.
#pragma once

namespace jit_amp {

inline constexpr const char* kNormComposites = R"SCRIPT(
def is_eligible_on_cuda(x: Tensor) -> bool:
    return x.is_floating_point() & (x.dtype != 7) & x.is_cuda

def norm__Scalar(x: Tensor, p: float) -> Tensor:
    if is_eligible_on_cuda(x):
        return torch.norm(x, p, dtype=6)
    return torch.norm(x, p)

def norm__ScalarOpt_dim(x: Tensor, p: Optional[float], dim: List[int], keepdim: bool) -> Tensor:
    if is_eligible_on_cuda(x):
        return torch.norm(x, p, dim, keepdim, dtype=6)
    return torch.norm(x, p, dim, keepdim)
)SCRIPT";

}  // namespace jit_amp
