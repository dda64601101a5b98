// name_convolutions: the convolutions of a trace, by the names that they were called by.
//
// PyTorch's tracer records `_convolution` for conv1d, conv2d and their like, and autocast has no
// policy for that on CPU: it becomes again what was called. Not by PyTorch's own rewriting
// (graph_rewrite_helper.cpp): that folds the graph's constants first, as if no scope were around
// them.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether there were any.
bool name_convolutions(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
