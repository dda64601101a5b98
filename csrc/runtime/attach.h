// attach: has scripted functions run lowered graphs, where that makes a difference.
//
// What has no autocast in it stays as PyTorch made it, with PyTorch's executor, and `serve_ambient`
// sees to calls under an ambient autocast alone. Of what has scopes, the optimized graph becomes a
// Program (runtime/program.h), and the source graph stays, so that saving and lowering it again are
// as before: a module's methods where they are, if PyTorch compiled its types for jit_amp; else
// those of a copy. PyTorch's own autocast pass never sees it. A plainly scripted caller inlines the
// optimized graph, and so runs what the function would.
#pragma once

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <string>

namespace jit_amp {

// Has calls of this function under an ambient autocast for CPU or CUDA run a Program; other calls
// stay PyTorch's. False, and nothing is changed: it was called under one before, and what PyTorch
// has made for that may be running in another thread.
bool serve_ambient(torch::jit::GraphFunction& function, bool only_asks = false);

// Whether `serve_ambient` would serve all methods of the type.
bool can_serve(const c10::ClassTypePtr& type);

// Lowers the methods and hooks of a module's type. No module of that type may be anybody else's.
void lower_type(const c10::ClassType& type);

// Lowers a module whose types with scopes are jit_amp's own (`lower_type`), those below it
// included; types without scopes have calls under an ambient autocast served. Returns false, and
// the module is not lowered, where one of its types has scopes and is not ours, or cannot be
// served. Throws as `lowered_copy` does.
bool lower_where_it_is(const torch::jit::Module& module);

// A function of its own with the same source graph.
torch::jit::StrongFunctionPtr copied(const torch::jit::StrongFunctionPtr& function);

// A module with the same parameters and buffers, of types of its own. Throws AutocastError where it
// has forward hooks.
torch::jit::Module own_copy(const torch::jit::Module& module);

// Without scopes, a copy that is served. Throws AutocastError where a scope cannot be known when
// compiling.
torch::jit::StrongFunctionPtr lowered_copy(const torch::jit::StrongFunctionPtr& function);

// A module with the same parameters, buffers and submodules' attributes, of types of its own, with
// every method lowered. Those that no other method calls are refused here, if they are; the others
// may be fine where their callers hand them constants, and are refused when they are called alone.
// Without scopes, a copy that is served.
torch::jit::Module lowered_copy(const torch::jit::Module& module);

// Inlines all calls in the graph, by what the functions were compiled to: a graph to look at.
// PyTorch's inliner takes what they run, a Program.
void inline_sources(torch::jit::Graph& graph);

}  // namespace jit_amp
