// promote_operands: type promotion that PyTorch's differentiation would get wrong, written out.
//
// PyTorch's executor differentiates `x + y` by a formula that hands the gradient of the sum to both
// operands. If one of them is bfloat16 and the other float32, so that the sum is float32, its
// gradient arrives in float32 at a layer that is bfloat16, and the backward pass raises. With the
// narrower operand cast first, as the operator does by itself, the gradient is cast back where the
// cast is.
//
// Preserved: values, bit for bit. Only where the dtypes of the result and of the narrower operand
// are known.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed. What is known of the casts is added to the facts.
bool promote_operands(const std::shared_ptr<torch::jit::Graph>& graph, Facts& facts);

}  // namespace jit_amp
