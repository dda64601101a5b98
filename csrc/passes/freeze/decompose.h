// decompose: opaque composites, in terms of operators that have a policy.
//
// A composite operator has no autocast kernel of its own, but what it calls has. In process the
// dispatcher sees to that (`jit_amp::scoped`); a graph of stock operators has to hold the result.
// Where the composite has a definition (core/definitions.h; analysis/defined.h chooses it), the
// definition is lowered under the scope's state and put in its place. What is left opaque, legalize
// refuses.
//
// For freeze it runs after PyTorch's freezing, where weights are constants; for export on the
// lowered graph. That graph has to be lowered as Destination::stock.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool decompose(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
