// run_tasks: tasks that run where they are started.
//
// In eager `torch.jit.fork` calls its function at once, in the same thread: so what it runs is
// under the caller's scopes, and shares the caller's weight cache. Where scopes are entered while
// the graph runs (enter_scopes.h) a task therefore becomes part of the graph that starts it, and
// its future is one that has its result already.
//
// Preserved: operators and their order in eager. What a task raises is raised where it is started.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Whether all futures that the graph has are seen to be those of tasks that it starts itself: not
// where one is an input, or comes from an object's attribute or what is called.
bool can_run_tasks(torch::jit::Graph& graph);

// Returns whether the graph changed.
bool run_tasks(torch::jit::Graph& graph);

}  // namespace jit_amp
