// flatten: one graph that holds everything a call of a function would run.
//
// Returns a copy of the function's source graph with every call of a scripted function or method
// inlined, except the constructors of autocast objects: their arguments are what the analysis
// `scopes` reads. `with` of another object becomes calls of its `__enter__` and `__exit__`, which
// are inlined too, where autocast makes a difference to them; PyTorch's interpreter then does not
// know that it is entered, and runs no `__exit__` where an exception leaves the block. Calls that
// cannot be known when compiling (interfaces, Python) stay. The function and its callees are left
// as they are.
//
// Preserved: source ranges and call stacks, which errors show.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>

#include <memory>

namespace jit_amp {

// `self` is the module that the function is a method of; null for a function, or where it does not
// matter. A callee that ignores autocast (core/ignored.h) is put into disabled scopes. With
// `is_final`, the modules behind interfaces are those that are there now, and calls of them are
// inlined too; but not of one that the module's code assigns.
std::shared_ptr<torch::jit::Graph> flatten(torch::jit::GraphFunction& function,
                                           const torch::jit::ObjectPtr& self,
                                           bool is_final = false);

}  // namespace jit_amp
