// alone: one pass, or one analysis, on one graph. For tests, which write graphs as text.
#pragma once

#include <memory>
#include <string>

#include "pipelines/pipeline.h"

namespace jit_amp {

// Runs the pass of that name, as the tables have it, on `context.graph`, which has to be in the
// phase that the pass needs: that is verified, as is what it leaves. Of a pass that stands in
// several rows "keep_detach:2" is the second. Facts about the graph's inputs come from their types.
// Returns whether the pass says that the graph changed. Throws std::invalid_argument where no table
// has the pass.
bool run_alone(const std::string& pass, Context& context);

// The graph of a function, or of a method of `self`, after the passes of `flattening` up to `last`.
std::shared_ptr<torch::jit::Graph> flattened(torch::jit::GraphFunction& function,
                                             const torch::jit::ObjectPtr& self,
                                             const std::string& last);

// The function `name` of `source` as passes/source/specialize.h makes it for the last node of the
// graph, whose operands it takes. Casts of the definition are left out.
std::shared_ptr<torch::jit::Graph> specialized(const std::shared_ptr<torch::jit::Graph>& graph,
                                               const std::string& source, const std::string& name);

// What is known of each value of a graph, in program order, a line each:
// "aten::mm BFloat16 cpu some" (dtypes, device, whether it has dimensions).
std::string facts_of(const std::shared_ptr<torch::jit::Graph>& graph);

// The autocast state at each node, a line each: "aten::mm cpu=BFloat16".
std::string scopes_of(const std::shared_ptr<torch::jit::Graph>& graph, const AutocastState& entry);

}  // namespace jit_amp
