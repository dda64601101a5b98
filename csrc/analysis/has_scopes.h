// has_scopes: whether there is an autocast scope in what a function, an object or a module runs.
//
// Looks at source graphs, and through calls of functions, of methods and of objects' methods.
// Behind an interface of classes may be any class that there is; a module behind an interface is
// found as a module of its own.
//
// An analysis: the graphs do not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <unordered_map>

namespace jit_amp {

// Asks; what it has seen once it remembers.
class HasScopes {
 public:
  bool operator()(torch::jit::GraphFunction& function);
  // Any of the class's own methods and hooks.
  bool methods(const c10::ClassType& type);
  // These, and those of its submodules' classes.
  bool operator()(const c10::ClassType& type);
  // Any method or hook of the module and of those below it.
  bool operator()(const torch::jit::Module& module);

 private:
  bool look(torch::jit::Graph& graph);
  bool behind(const c10::InterfaceType& interface);

  std::unordered_map<const torch::jit::Function*, bool> functions_;
  std::unordered_map<const c10::ClassType*, bool> types_;
};

}  // namespace jit_amp
