// fold_legalized: what follows from the constants of a legalized graph.
//
// PyTorch's constant propagation makes a cast of a constant weight a constant, and takes the
// branches of what legalize has put in where the facts decide them. A check of an input that is
// left and always fails is an error now: every call would raise it.
//
// Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph may have changed. Throws AutocastError.
bool fold_legalized(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
