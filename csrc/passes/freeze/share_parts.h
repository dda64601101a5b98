// share_parts: a constant that is a part of another is a view of it.
//
// PyTorch's constant propagation makes three constants of `weight.chunk(3)`, which in memory are
// the weight's. In a file each would stand by itself, and each would be cast by itself. Here they
// become `aten::as_strided` of the whole. The interpreter's own constant propagation turns them
// into constants again, which share memory.
//
// Constants that anything writes to stay. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool share_parts(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
