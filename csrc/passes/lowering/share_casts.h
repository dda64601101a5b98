// share_casts: never more casts than eager makes, but for one before a loop that runs no times.
//
// A module's attribute that is read several times is read once. A cast of a value to the same
// dtypes as an earlier one that dominates it becomes that one; first, casts move up where that
// makes none more: out of a loop in which the value does not change, and in front of branches and
// loops that make them too. So a weight is cast once a call, as by eager's cache, and where eager
// caches nothing once too.
//
// Values that anything writes to, or that may alias one that is (PyTorch's AliasDb), keep their
// casts where they are: a write between two casts makes them differ, and unlike eager's cache ours
// are never stale. Casts of lists are left alone, because AliasDb does not see a write to an
// element as one to the list; and a cast under no_grad is not one outside it.
//
// Preserved: values, dtypes, gradients up to the order of their sums. Must run after: lower.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool share_casts(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
