// flatten: one graph that holds everything a call of a function would run.
//
// Returns a copy of the function's source graph with every call of a scripted function or method
// inlined, except the constructors of autocast objects: their arguments are what the scopes pass
// reads. Calls that cannot be known when compiling (interfaces, Python) stay. The function and its
// callees are left as they are. Afterwards the cheap folds that PyTorch itself does before running
// are done (`is None` checks, constant conditions), so that a constant handed through helpers is
// one. Convolutions of a trace have their names again.
//
// Preserved: source ranges and call stacks, which errors show. Must run before:
// scopes.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>

#include <memory>

namespace jit_amp {

// `self` is the module that the function is a method of; null for a function, or where it does not
// matter. A callee that ignores autocast (runtime/ignore.h) is put into disabled scopes. With
// `is_final`, the modules behind interfaces are those that are there now, and calls of them are
// inlined too; but not of one that the module's code assigns.
std::shared_ptr<torch::jit::Graph> flatten(torch::jit::GraphFunction& function,
                                           const torch::jit::ObjectPtr& self,
                                           bool is_final = false);

// PyTorch's tracer records `_convolution` for conv1d, conv2d and their like, and autocast has no
// policy for that on CPU: it becomes again what was called.
void name_convolutions(const std::shared_ptr<torch::jit::Graph>& graph);

// Those folds, again: where constants came in.
void fold_constants(const std::shared_ptr<torch::jit::Graph>& graph);

// Whether `type` is one of the classes that TorchScript makes of torch.autocast,
// torch.amp.autocast, torch.cuda.amp.autocast and torch.cpu.amp.autocast.
bool is_autocast_class(const c10::TypePtr& type);

}  // namespace jit_amp
