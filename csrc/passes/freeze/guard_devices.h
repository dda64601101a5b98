// guard_devices: a frozen module whose weights were moved to another device raises.
//
// What autocast does to a weight is decided by its device, and is computed when freezing. So is
// what follows from it. `torch.jit.load(..., map_location=...)` moves weights afterwards. It moves
// all constants, so a small one tells: the graph begins with a check of it.
//
// Must run last: what computes constants in advance would take the check away.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/abstract_value.h"

namespace jit_amp {

// `self`: what is known of the module's attributes. Returns whether there was anything to check.
bool guard_devices(torch::jit::Graph& graph, const AbstractValue& self);

}  // namespace jit_amp
