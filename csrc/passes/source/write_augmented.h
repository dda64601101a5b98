// write_augmented: `x **= y`, `x &= y`, `x |= y`, `x ^= y` and `x %= y` of tensors are Python's.
//
// The first four write to x in Python, as `+=` and its like do in TorchScript too; but of them
// TorchScript's compiler makes `aten::pow`, `aten::bitwise_and` and so on, a new tensor. Besides
// what is written, that is another dtype: CUDA's autocast has a policy for `pow` and none for
// `pow_`. Of
// `%=` it makes `aten::fmod_`, whose result has the sign of x, where Python's, of `remainder_`, has
// that of y. Such a node is told by the source line that it came from; in a program that was saved
// and loaded, that line is gone.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether there were any.
bool write_augmented(torch::jit::Graph& graph);

}  // namespace jit_amp
