// write_activations: an activation in place that makes a new tensor.
//
// oneDNN's fusion makes `relu` of every `relu_` (torch/csrc/jit/codegen/onednn/interface.cpp), and
// asks for the types of its operands and result. PyTorch's executor has seen the result's only if
// an operator takes it that the executor observes; otherwise, as before an upsampling or a view,
// the fusion fails on a reduced dtype with "could not add op to the graph". The results of
// operators that make new tensors it observes always. So an activation in place becomes one of
// these where nothing else would have its result observed.
//
// It is PyTorch's own RemoveTensorMutation, where that finds that nobody else sees what is written.
//
// Preserved: values, dtypes, and which results share memory. A tensor more is allocated while it
// runs. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Whether the node is an activation in place that oneDNN's fusion or fuse_pointwise take, on a CPU,
// in floating point, of a tensor with memory of its own: its functional form gives the same, with
// the same strides.
bool may_be_functional(const torch::jit::Node* node, const Facts& facts);

// Returns whether the graph changed.
bool write_activations(const std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

}  // namespace jit_amp
