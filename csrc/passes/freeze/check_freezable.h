// check_freezable: refuses what PyTorch's freezing would fail on.
//
// It has internal assertions against a module that is chosen at run time, and one behind an
// interface that the module's code assigns. Nothing changes.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Throws AutocastError.
void check_freezable(torch::jit::Graph& graph);

}  // namespace jit_amp
