// own_callstacks: what a frozen module's nodes say of the functions that they were written in.
//
// A node that was inlined points to the functions that called it, and when it raises, the
// interpreter asks them for their names (torch/csrc/jit/runtime/interpreter.cpp, callstack).
// PyTorch's freezing removes these functions, so that an error in a frozen module ends the process.
// Here the names get functions that stay: empty ones, one for each name, for the whole process.
// Lines and submodules stay what they are.
//
// Must run after PyTorch's freezing, and after all passes: what they make has the callstacks of the
// nodes beside it.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace jit_amp {

void own_callstacks(const std::vector<std::shared_ptr<torch::jit::Graph>>& methods);

}  // namespace jit_amp
