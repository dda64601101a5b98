// hidden_calls: code that a node runs, and that no call in the graph shows.
//
// `with` of an object of a TorchScript class runs the class's `__enter__` and `__exit__`; sorting a
// list of such objects runs their `__lt__`. PyTorch's interpreter finds these methods when it gets
// there (torch/csrc/jit/runtime/interpreter.cpp, register_prim_ops.cpp), so no pass sees what is in
// them.
//
// An analysis: the graph does not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// The method that the node runs so; null for any other node, and for a `with` of an autocast
// object.
torch::jit::GraphFunction* hidden_callee(const torch::jit::Node* node);

// Whether autocast for the CPU or the accelerator could make any difference to what the function
// runs, its callees included.
bool concerns_autocast(torch::jit::GraphFunction& function,
                       c10::DeviceType accelerator = c10::DeviceType::CUDA);

}  // namespace jit_amp
