// preconditions: what an input has to be, because the program fails with any other.
//
// For a module that is frozen without examples. Its weights are constants, so much is known of
// its inputs all the same:
//
//   - A product and a lookup in a table raise if their operands are on different devices
//     (transfer.h: takes_one_device). Where one of them is a weight, an input that gets there
//     whichever way the graph goes, through operators that take no other tensor, is on its device.
//   - A linear layer or convolution in a scope raises if its operands have different dtypes. Its
//     weight is reduced, so its input has to be one that autocast casts: float32, bfloat16 or
//     float16. So has an input of the graph that gets there whichever way the graph goes, through
//     operators whose result has their operand's dtype.
//
// A frozen module's guard asks for them (guards.h). An analysis: the graph does not change. Must
// run after: lower (as Destination::stock), decompose. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

#include "analysis/abstract_value.h"

namespace jit_amp {

std::vector<AbstractValue> inferred_preconditions(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
