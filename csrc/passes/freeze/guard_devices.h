// guard_devices: a frozen module whose weights were moved to another device raises.
//
// What autocast does to a weight is decided by its device, and is computed when freezing. So is
// what follows from it. `torch.jit.load(..., map_location=...)` moves all constants afterwards. So
// the graph begins with a check of one of them: a small one, as weights that are packed for a
// processor (passes/server/pack_weights.h) are not to be held for it. Where weights are on an
// accelerator those on the CPU may be moved: they are tables and numbers.
//
// No pass that computes constants in advance may run later: it would take the check away.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/abstract_value.h"

namespace jit_amp {

// `self`: what is known of the module's attributes. Returns whether there was anything to check.
bool guard_devices(torch::jit::Graph& graph, const AbstractValue& self);

}  // namespace jit_amp
