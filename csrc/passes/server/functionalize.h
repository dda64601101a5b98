// functionalize: what is done in place makes new tensors, and lists are made at once.
//
// Activations in place make new tensors, so that fuse_pointwise computes them in the layer before;
// so does what is done to the scores of an attention, for fuse_attention. What writes to a tensor
// also keeps PyTorch from telling what is in a list, such as the feature maps that a U-Net keeps
// for later. With the writes gone, lists that are appended to become lists of all elements, and
// what is read from such a list becomes the element itself.
//
// All of it is PyTorch's own RemoveTensorMutation and RemoveListMutation, where they find that
// nobody else sees what is written, on a CPU, in floating point, and of what an operator has made
// that is known to make new tensors.
//
// Preserved: values, dtypes, and which results share memory. A tensor more is allocated while it
// runs. Loops must be marked. Must run before channels_last, fuse_attention and fuse_pointwise. For
// modules that are frozen with target="server"; of others write_activations does what it must.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool functionalize(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

}  // namespace jit_amp
