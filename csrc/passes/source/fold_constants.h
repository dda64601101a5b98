// fold_constants: what PyTorch itself folds before it runs a graph, so that constants are seen.
//
// `x is None` where the type of x answers it, constant conditions and arithmetic, constants that
// are handed to forked tasks: a constant that goes through helpers to the arguments of an autocast
// scope is one afterwards. Only immutable types are computed with, as PyTorch does it.
//
// Loops must be marked. Must run before: scopes are looked for.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool fold_constants(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
