// detach_sizes: the size of a tensor that a list or tuple holds, read off an alias of it.
//
// A frozen module has to survive PyTorch's own optimisers. oneDNN's fusion
// (torch/csrc/jit/codegen/onednn/defer_size_check.cpp) asks every user of a tensor whose size is
// read for its operator, and raises "Schema not found for node" where the user is no operator: a
// list, a tuple, what is returned. An alias (`aten::detach`) has no such users.
//
// No pass that takes views away may run later.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool detach_sizes(torch::jit::Graph& graph);

}  // namespace jit_amp
