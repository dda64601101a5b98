// lower: autocast's meaning, written into the graph.
//
// Takes a flattened graph with its scopes and carries out the plan of it (analysis/plan.h):
// operands of known operators get casts (`jit_amp::cast`, the line to look for is
// `cast_operand`), opaque nodes get the dispatcher's own autocast around them
// (`jit_amp::scoped`), queries of autocast's state are answered, and the scopes go. Afterwards no
// node depends on the thread's autocast state, but for `jit_amp::ambient_dtype` at the graph's
// beginning, so PyTorch's passes may move and merge what they like. Under an enabled entry state
// the graph is to run with the ambient autocast suspended: its casts are in the graph.
//
// Throws AutocastError where a query's answer is known only at run time. Preserved: which of the
// program's operators run and their order, aliasing (a cast may return its input), in-place and
// out= operators, source ranges. Must run after: flatten; the analysis of scopes. Must run before:
// decompose, legalize.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/plan.h"
#include "analysis/scopes.h"

namespace jit_amp {

// Returns whether the graph changed. `entry` is the state that `scopes` was found with.
bool lower(const std::shared_ptr<torch::jit::Graph>& graph, const Scopes& scopes,
           const AutocastState& entry, Destination destination);

}  // namespace jit_amp
