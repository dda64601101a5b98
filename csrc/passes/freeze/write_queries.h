// write_queries: queries of autocast's state, by operators that PyTorch itself has.
//
// TorchScript has no operator for `torch.is_autocast_enabled("cpu")` and
// `torch.get_autocast_cpu_dtype()`; jit_amp registers them (runtime/kernels.cpp), so that such code
// can be compiled. Another process does not have them. What lowering has not answered becomes
// `aten::is_autocast_cpu_enabled()` and its like, which mean the same.
//
// A device that is known at run time only, `x.device.type`, may be known once the examples are:
// `ask_and_write_queries` makes one question of each device of it, and `refuse_open_questions`
// refuses what is still open when facts about the inputs have decided what they can.
//
// Throws AutocastError for a device that is neither "cpu" nor "cuda", or known at run time only.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// All return whether the graph changed.
bool write_queries(torch::jit::Graph& graph);
bool ask_and_write_queries(torch::jit::Graph& graph);
bool refuse_open_questions(torch::jit::Graph& graph);

}  // namespace jit_amp
