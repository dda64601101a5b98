// write_operators: some of Python's operators on tensors, as Python has them.
//
// - `x **= y`, `x &= y`, `x |= y` and `x ^= y` write to x, as `+=` and its like do in TorchScript
//   too; but of them TorchScript's compiler makes `aten::pow`, `aten::bitwise_and` and so on, a new
//   tensor. Besides what is written, that is another dtype: CUDA's autocast has a policy for `pow`
//   and none for `pow_`.
// - `d["k"] += y` of a dictionary, with any operator, writes to the tensor that is there. The
//   compiler puts a new one there, of the dtype that both promote to.
// - `x %= y` is `remainder_`, whose result has the sign of y. The compiler's `aten::fmod` has x's.
// - `1.0 - x` is `rsub`. The compiler adds to `-x`, which wraps around where x is of unsigned
//   integers.
// - `x.norm()` is Python's torch.norm (torch/functional.py), which takes `frobenius_norm` on XPU
//   and MPS. The compiler makes `aten::norm`, of which their autocast has other lists. Written out
//   where the accelerator is one of these.
//
// Such a node is told by the source that it came from, which torch.jit.save keeps.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether there were any.
bool write_operators(torch::jit::Graph& graph);

}  // namespace jit_amp
