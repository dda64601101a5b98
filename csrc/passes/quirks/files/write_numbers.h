// write_numbers: the numbers of a trace, as numbers.
//
// PyTorch's tracer records the 0.5 of `x * 0.5` as a tensor without dimensions that is marked as a
// number (c10::TensorImpl::is_wrapped_number), so that it takes part in type promotion as a number
// does. Files do not keep the mark: what is loaded promotes an integer to float64. An operand that
// is such a constant becomes the number, where the operator has an overload for it.
//
// Preserved: everything that the graph does in this process.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool write_numbers(torch::jit::Graph& graph);

}  // namespace jit_amp
