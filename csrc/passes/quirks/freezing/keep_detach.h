// keep_detach: `detach` through PyTorch's freezing.
//
// PyTorch's freeze_module drops every `aten::detach`, as if nobody took gradients of a frozen
// module. Callers do, and so do programs that call `torch.autograd.grad`: without it the gradient
// is another one, and results require grad that did not. `hide_detach` writes `jit_amp::detached`
// in its place before freezing, and `show_detach` brings it back.
//
// Preserved: everything that the graph does.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Both return whether the graph changed.
bool hide_detach(torch::jit::Graph& graph);
bool show_detach(torch::jit::Graph& graph);

}  // namespace jit_amp
