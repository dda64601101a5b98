// keep_zero_dim: a constant without dimensions that PyTorch's executor does not make a number of.
//
// The executor puts a number in the place of the constant `b` in `a + b`, `a - b`, `a * b` and
// `a / b` (torch/csrc/jit/passes/canonicalize_ops.cpp). Type promotion tells the two apart: a
// number gives way to every tensor of floating point, a float32 constant to those with dimensions
// only. So such a constant is read through `aten::detach`, which the executor folds later on.
//
// Where the other operand is known to be of floating point and to have dimensions, both give way to
// it. oneDNN's fusion (torch/csrc/jit/codegen/onednn/prepare_binary.cpp) promotes without a look at
// dimensions, and would compute `x * 0.25`, of which the tracer makes a float64 constant, in
// float64. So there a constant that is the second operand stays as it is, and the executor may make
// its number. One that is the first becomes one of one dimension, rounded to the other's dtype, as
// the operator would have rounded it: the fusion can take none without dimensions.
//
// Preserved: values, and dtypes, which the executor would change. No pass that computes constants
// in advance may run later: it would take the detour away.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool keep_zero_dim(torch::jit::Graph& graph, const Facts& facts);

}  // namespace jit_amp
