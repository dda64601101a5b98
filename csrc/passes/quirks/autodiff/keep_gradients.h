// keep_gradients: gradients that a program takes itself are eager's on each call.
//
// PyTorch's executor differentiates chains of operators itself from the second call on
// (torch/csrc/jit/passes/create_autodiff_subgraphs.cpp), by formulas of its own, whose results are
// rounded otherwise than autograd's. A program that calls `torch.autograd.grad` or `backward`
// returns such gradients. Where a graph does, the results of its operators pass through
// `aten::alias`, of which the executor has no formula: there is no chain left for it to take.
//
// Preserved: everything that the graph does.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool keep_gradients(torch::jit::Graph& graph);

}  // namespace jit_amp
