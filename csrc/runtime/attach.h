// attach: gives a function the graphs that it will run.
//
// A function keeps one optimized graph per ambient state (autocast off, on for CPU, for CUDA, for
// both) and builds its executor from the one of the calling thread's state. `lowered_copy` makes a
// new function whose source graph is the given one's, so that saving and lowering it again are as
// before, and whose optimized graphs are lowered. PyTorch's own autocast pass never sees them. A
// plainly scripted caller inlines the optimized graph of its own ambient state, and so runs what
// the function would. The given function, and functions that share its graph, are left as they are.
#pragma once

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>

#include "passes/scopes.h"

namespace jit_amp {

// The graph that a call of `function` runs under an ambient autocast of the given devices.
std::shared_ptr<torch::jit::Graph> lowered_graph(torch::jit::GraphFunction& function, bool cpu,
                                                 bool cuda);

// A function of its own with the same source graph.
torch::jit::StrongFunctionPtr copied(const torch::jit::StrongFunctionPtr& function);

// A module with the same parameters and buffers, of types of its own. Throws AutocastError where it
// has forward hooks.
torch::jit::Module own_copy(const torch::jit::Module& module);

// The module at a dotted path.
torch::jit::Module submodule(const torch::jit::Module& module, const std::string& path);

// Throws AutocastError where a scope cannot be known when compiling.
torch::jit::StrongFunctionPtr lowered_copy(const torch::jit::StrongFunctionPtr& function);

// A module with the same parameters, buffers and submodules' attributes, of types of its own, with
// every method lowered.
torch::jit::Module lowered_copy(const torch::jit::Module& module);

}  // namespace jit_amp
