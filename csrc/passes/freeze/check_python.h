// check_python: refuses a call of Python, which no file holds.
//
// A frozen module is there to be saved, and torch.jit.save raises for such a call, inside of a
// scope and outside. Nothing changes. Must run after what takes out the branches that are never
// taken.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Throws AutocastError.
void check_python(torch::jit::Graph& graph);

}  // namespace jit_amp
