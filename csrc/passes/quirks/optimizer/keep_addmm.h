// keep_addmm: an `addmm` that PyTorch's executor does not take apart.
//
// Where `beta` and `alpha` are the constant 1, it makes `mm` and `add` of `addmm`
// (torch/csrc/jit/passes/decompose_ops.cpp), which rounds twice in a reduced dtype where eager
// rounds once. So `beta` is a 1 that is known at run time only: whether the first operand has at
// least no dimensions.
//
// Preserved: values, which the executor would change.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool keep_addmm(torch::jit::Graph& graph);

}  // namespace jit_amp
