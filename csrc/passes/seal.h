// seal: a lowered graph made of stock operators alone.
//
// Every operator of jit_amp's own is replaced by its definition in TorchScript (definitions.h),
// questions about dtype and device that the facts answer become constants, and PyTorch's constant
// propagation does the rest: a cast whose input is known becomes one `aten::to` or nothing, a cast
// of a constant becomes a constant. What the facts do not know stays a question at run time, right
// for every input. Where facts were used, the graph begins with a check that its inputs are of the
// dtypes and devices that the facts came from.
//
// An opaque node (`jit_amp::scoped`) that the facts do not free of its scope is refused with an
// AutocastError at its line. Must run after: lower (as Product::exported), facts.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "passes/facts.h"

namespace jit_amp {

void seal(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

}  // namespace jit_amp
