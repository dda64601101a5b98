// functionalize: activations do not write, and lists are made at once.
//
// `x.relu_()` writes to a tensor, and after it PyTorch's analyses can say less of every tensor that
// is in a list: whether feature maps that a network keeps for later, as a U-Net does, are read or
// written. So activations in place become their functional form, lists that are appended to become
// lists of all elements, and what is read from such a list becomes the element itself. All of it is
// done by PyTorch's own passes, where they can prove that it changes nothing.
//
// Preserved: values, dtypes, and which results share memory. More memory is used, for a moment. For
// artefacts that are frozen with target="server", whose activations fuse_pointwise computes in the
// layer before them. Must run: before channels_last. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool functionalize(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
