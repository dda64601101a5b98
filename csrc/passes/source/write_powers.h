// write_powers: `x **= y` of tensors writes to x.
//
// In Python it does, and in TorchScript `+=` and its like do too, but of `**=` TorchScript's
// compiler makes `aten::pow`, a new tensor. Besides what is written, that is another dtype: CUDA's
// autocast has a policy for `pow` and none for `pow_`. Such a node is told by the source line that
// it came from; in a program that was saved and loaded, that line is gone.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether there were any.
bool write_powers(torch::jit::Graph& graph);

}  // namespace jit_amp
