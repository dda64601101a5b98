// clean: one cast where several say the same.
//
// A cast of a value to the same dtypes as an earlier cast that dominates it becomes that earlier
// one. Values that anything writes to, or that may alias one that is (PyTorch's AliasDb), keep
// their casts apart: a write between two casts makes them differ. Casts of lists are left alone,
// because AliasDb does not see a write to an element as one to the list; and a cast under no_grad
// is not one outside it.
//
// Preserved: values, dtypes, gradients up to the order of their sums. Must run after: lower.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool share_casts(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
