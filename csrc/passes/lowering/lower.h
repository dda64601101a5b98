// lower: autocast's meaning, written into the graph.
//
// Takes a flattened graph with its scopes and carries out the plan of it (analysis/plan.h):
// operands of known operators get casts (`jit_amp::cast`, the line to look for is
// `cast_operand`), opaque nodes get the dispatcher's own autocast around them
// (`jit_amp::scoped`), and the scopes go. Afterwards no node depends on the thread's autocast
// state, so PyTorch's passes may move and merge what they like. Under an enabled entry state the
// graph is to run with the ambient autocast suspended: its casts are in the graph.
//
// Preserved: which operators run and their order, aliasing (a cast may return its input), in-place
// and out= operators, source ranges. Must run after: flatten, scopes. Must run before: decompose,
// legalize.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/plan.h"
#include "analysis/scopes.h"

namespace jit_amp {

// Returns whether the graph changed. `entry` is the state that `scopes` was found with.
bool lower(const std::shared_ptr<torch::jit::Graph>& graph, const Scopes& scopes,
           const State& entry, Product product);

}  // namespace jit_amp
