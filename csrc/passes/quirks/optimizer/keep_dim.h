// keep_dim: how many dimensions the result of a convolution has is asked of its input.
//
// A convolution takes inputs with and without a batch. PyTorch's optimisers take for granted that
// there is one, and make a constant of `conv2d(x, weight).dim()`
// (torch/csrc/jit/passes/peephole_alias_sensitive.cpp). Without a batch the program then takes
// another branch than in eager. The input has as many dimensions as the result. Of an element of a
// list, and of what a branch or a loop gives, it is not known yet whether it is a convolution's
// result: of these the length of the size is asked.
//
// A question that decides about nothing but an error stays. It is the one that a batch norm asks,
// and PyTorch's answer is what lets the batch norm be folded into the convolution before it. So
// such a program computes something without a batch, where eager raises, as it does when it is
// frozen by PyTorch.
//
// Preserved: values, which these optimisers would change. Must run before the first of them, which
// is PyTorch's freezing, and after passes that may ask anew.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool keep_dim(torch::jit::Graph& graph);

}  // namespace jit_amp
