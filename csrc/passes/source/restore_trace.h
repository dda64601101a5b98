// restore_trace: a source graph of a trace.
//
// What runtime/record.h put into a trace becomes what torch.jit.script would have made of it:
// `jit_amp::enter` and `jit_amp::exit` a `with torch.autocast(...)`, and the casts that autocast
// put in go, for lower to put them in again where the graph is used. Casts of the author's stay,
// and so do autocast's before an operator that the tracer records as others, for which there is no
// policy.
//
// Must run before: anything else reads the graph, which must belong to the caller alone.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// `pattern` as for wrap. Throws AutocastError: a scope that one traced module enters and another
// leaves.
void restore(const std::shared_ptr<torch::jit::Graph>& graph, torch::jit::Graph& pattern);

}  // namespace jit_amp
