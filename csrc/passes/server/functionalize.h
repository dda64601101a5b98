// functionalize: activations in place make new tensors, where analyses or fusions need that.
//
// oneDNN's fusion makes `relu` of every `relu_` and asks for the types of its operands and result.
// PyTorch's executor has seen the result's only if an operator takes it that the executor observes;
// otherwise, as before an upsampling or a view, the fusion fails on a reduced dtype with "could not
// add op to the graph". The results of operators that make new tensors it observes always. So an
// activation in place becomes one of these where nothing else would have its result observed.
//
// For servers all of them do: fuse_pointwise computes them in the layer before. So does what is
// done to the scores of an attention, for fuse_attention. And what writes to
// a tensor also keeps PyTorch from telling what is in a list, such as the feature maps that a U-Net
// keeps for later. With the writes gone, lists that are appended to become lists of all elements,
// and what is read from such a list becomes the element itself.
//
// All of it is PyTorch's own RemoveTensorMutation and RemoveListMutation, where they find that
// nobody else sees what is written, on a CPU, in floating point, and of what an operator has made
// that is known to make new tensors.
//
// Preserved: values, dtypes, and which results share memory. A tensor more is allocated while it
// runs. Loops must be marked. Must run before channels_last.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool functionalize(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts, bool for_server);

}  // namespace jit_amp
