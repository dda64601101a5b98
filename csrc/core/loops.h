// loops: makes loop-carried aliases visible to AliasDb.
//
// A loop's results are what went in, where it runs no times; what goes into an iteration is what
// the one before gave. PyTorch's AliasDb knows neither: dead code elimination then drops writes,
// and share_casts would share a cast across one. `mark_loops` sends everything that a loop carries
// and that can be written to through `jit_amp::carried`, which returns it, and says that it may
// alias whatever else is carried, comes in or goes out. `unmark_loops` takes these nodes out.
//
// Preserved: everything that the graph does. Must run: before the first pass that asks AliasDb, and
// after the last; for all between, `carried` is an operator without a policy.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Both return whether the graph changed.
bool mark_loops(torch::jit::Graph& graph);
bool unmark_loops(torch::jit::Graph& graph);

}  // namespace jit_amp
