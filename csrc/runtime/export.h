// export: the graphs that jit_amp/_export interprets.
//
// A function's flat graph, lowered (pipelines/script.h) and with its composites written out
// (passes/freeze/decompose.h). Nothing is frozen: parameters and buffers are read of the module, so
// they keep their names, and what is written to them stays. What is left of the dialect, the
// interpreter answers itself, because it sees the tensors.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>

#include <memory>

namespace jit_amp {

// `self` is null for a function. Throws AutocastError for what cannot be flattened or lowered.
std::shared_ptr<torch::jit::Graph> interpretable_graph(torch::jit::GraphFunction& function,
                                                       const torch::jit::ObjectPtr& self);

// The graph of the method that the node runs without a call (analysis/hidden_calls.h); null for any
// other node.
std::shared_ptr<torch::jit::Graph> hidden_graph(const torch::jit::Node* node);

}  // namespace jit_amp
