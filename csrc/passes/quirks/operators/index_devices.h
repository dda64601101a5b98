// index_devices: `torch.device("cuda", 1)` is `torch.device("cuda:1")`.
//
// PyTorch's kernel of the first (device_with_index, torch/csrc/jit/runtime/register_prim_ops.h)
// takes its two operands for one another and fails with an INTERNAL ASSERT, unless PyTorch's
// executor has computed it as a constant.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool index_devices(torch::jit::Graph& graph);

}  // namespace jit_amp
