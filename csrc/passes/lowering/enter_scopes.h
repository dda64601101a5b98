// enter_scopes: scopes that are entered while the graph runs.
//
// For calls whose gradients are recorded, for programs with a scope for a device besides CPU and
// CUDA, whose lists the dispatcher alone knows, and for runtime/explain.h.
//
// Where gradients are recorded, what autocast does to a tensor depends on what the tensor is: a
// float32 leaf that requires grad has one cast for all its uses, kept in autocast's cache, and
// anything else one for each. Which it is, is known at run time. So the graph that runs then has no
// casts in it: each scope becomes `jit_amp::enter_scope` and `jit_amp::exit_scope`, which set the
// dispatcher's own state as torch.autocast does, and every operator runs under it as in eager.
//
// Preserved: operators, their order, and everything else that the graph does. Must run after
// run_tasks: a task may run in another thread, whose state is another. The scopes are those of the
// graph as it is then. No pass that moves, merges or drops operators may run afterwards.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/scopes.h"

namespace jit_amp {

// Whether the graph can run like that, after run_tasks. Not with tasks that others start. Nor with
// operators whose policy users stated, which the dispatcher does not know.
bool can_enter_scopes(torch::jit::Graph& graph);

// Returns whether the graph changed.
bool enter_scopes(torch::jit::Graph& graph, const Scopes& scopes);

}  // namespace jit_amp
