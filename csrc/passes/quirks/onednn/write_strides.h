// write_strides: the stride of a pooling that has none is written out.
//
// `F.max_pool2d(x, 2)` gives an empty list for the stride, which means the size of the kernel.
// oneDNN's fusion (torch/csrc/jit/codegen/onednn/graph_helper.cpp) hands the empty list on, and
// fails with "could not set attribute to the op". With the kernel's size in its place it does not,
// and the operator does what it did.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool write_strides(torch::jit::Graph& graph);

}  // namespace jit_amp
