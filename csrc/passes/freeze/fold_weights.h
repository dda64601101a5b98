// fold_weights: batch norms and arithmetic, folded into the weights before these are rounded.
//
// PyTorch folds a batch norm, or arithmetic with a number, into a convolution or linear layer whose
// weight is a constant. A cast between the two would hide the weight from it, and a weight that was
// rounded first would lose accuracy. So the casts are taken off, PyTorch folds, and the casts are
// put on what it has made. A tensor that is added or multiplied decides about the result's dtype,
// and is left, also in layers without casts; so is a batch norm in training mode, which PyTorch's
// own folding takes for one that is not. Nothing is folded into a layer whose weights float16 could
// not hold then, because they would be infinite or lose their digits: first a copy of the graph is
// folded, and looked at.
//
// Changes results by about the rounding of the weights. Must run after: lower; PyTorch's freezing,
// which makes the weights constants.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph may have changed.
bool fold_weights(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
