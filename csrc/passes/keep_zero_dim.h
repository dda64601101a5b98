// keep_zero_dim: a constant without dimensions that PyTorch's executor does not make a number of.
//
// The executor puts a number in the place of the constant `b` in `a + b`, `a - b`, `a * b` and
// `a / b` (torch/csrc/jit/passes/canonicalize_ops.cpp). Type promotion tells the two apart: a
// number gives way to every tensor of floating point, a float32 constant to those with dimensions
// only. So such a constant is read through `aten::detach`, which the executor folds later on.
//
// Preserved: dtypes, which the executor would change. Must run last: constant propagation takes the
// detour away.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool keep_zero_dim(torch::jit::Graph& graph);

}  // namespace jit_amp
