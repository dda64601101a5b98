// merge_branches: a branch whose two sides do the same is no branch.
//
// Definitions ask what a composite operator is given, and decide by it what is cast. Once casts are
// decided, both sides are often the same operators, as in an `einsum` of operands that have the
// scope's dtype already, or nothing at all, as in a dropout that does nothing. Such a side takes
// the place of its `prim::If`. So other passes and fusions see the operators.
//
// Loops must be marked. Must run after fold_legalized, which puts constants before the branches.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool merge_branches(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
