// legalize: a lowered graph made of stock operators alone.
//
// A cast whose operand is known becomes one `aten::to` or nothing. Every other operator of
// jit_amp's own is replaced by its definition in TorchScript (core/definitions.h), which asks at
// run time what the facts do not know. The graph begins with a check that its inputs are what the
// facts take for granted. Only the marks of loops are left of the dialect.
//
// An opaque node (`jit_amp::scoped`) to which, as far as the facts tell, its scope may still do
// something is refused with an AutocastError at its line. The graph has to be lowered as
// Destination::stock.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// `inputs`: what the facts take for granted of the graph's inputs, because an example told it or
// because the program fails with any other (preconditions.h).
void legalize(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts,
              const std::vector<AbstractValue>& inputs, bool by_example);

}  // namespace jit_amp
