// guard_autocast: a frozen module that is called under an ambient autocast raises.
//
// Its casts are operators. What autocast does to these operators at a call, PyTorch's pass for
// graphs (torch/csrc/jit/passes/autocast.h) or the dispatcher, would come on top of them, and no
// stock operator switches that off. So each method begins with a check per device that it computes
// on, if it has an operator that autocast for the CPU or an accelerator concerns: the product over
// no elements, in a reduced dtype, is of that dtype outside autocast, and float32 under one,
// whatever that one's dtype is.
//
// What the check is made of is chosen so that
//
//   - nothing that computes constants in advance takes it away: PyTorch's freezing of a module that
//     this one is a part of, optimize_for_mobile, or a pass of ours. It is computed with a list to
//     which the failing branch appends;
//   - PyTorch's executor takes it away, where it keeps a program of its own for each ambient
//     autocast, of the CPU and of CUDA: there a call costs nothing. It drops `aten::expand` that is
//     marked as implicit (RemoveExpands), and the rest are constants. For other devices there is no
//     such program: the expand is not marked, and every call computes the check;
//   - it is right without an executor, as in the lite interpreter.
//
// What the program asks of the autocast around it is answered: it is off. PyTorch's pass ends the
// process at such a question, where autocast is on.
//
// Where the device of an input is not known, and no weight is on an accelerator, an input that is
// not on the CPU is asked for its device's autocast.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <vector>

#include "analysis/abstract_value.h"

namespace jit_amp {

// `self`: what is known of the module's attributes. `inputs`: what is known of the graph's inputs.
// Returns whether the graph changed.
bool guard_autocast(torch::jit::Graph& graph, const AbstractValue& self,
                    const std::vector<AbstractValue>& inputs);

}  // namespace jit_amp
