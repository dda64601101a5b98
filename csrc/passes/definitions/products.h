// einsum, tensordot and bilinear: mirrors aten/src/ATen/native/Linear.cpp.
#pragma once

namespace jit_amp {

inline constexpr const char* kProductComposites = R"SCRIPT(
def check_contracted(x: Tensor, dim: int):
    assert x.size(dim) != 1, "jit_amp: an exported einsum does not know autocast's rule for a summed dimension of size 1"
)SCRIPT";

}  // namespace jit_amp
