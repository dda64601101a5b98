// modules: which module a value of a graph is, and what functions modules have.
//
// A graph that runs on a module has its submodules as reads of attributes, `self.a.b`. Where
// nothing that the module's own code assigns stands between, the module that is there can be named.
//
// An analysis: the graph does not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace jit_amp {

// The modules in a graph that runs on `self`, its first input.
class Modules {
 public:
  Modules(torch::jit::ObjectPtr self, torch::jit::Graph& graph);
  // The same of a graph that is being made, where other inputs are modules too: a trace hands those
  // over that several modules share. `given` has what each input is, null for what is no module or
  // not known.
  explicit Modules(std::vector<torch::jit::ObjectPtr> given) : given_(std::move(given)) {}

  // With the second constructor: to be called before anything in the fork's subgraph is asked for.
  void enter(torch::jit::Node* fork);
  // The operand of a fork that `value` is in its subgraph; null if it is none.
  torch::jit::Value* outside(const torch::jit::Value* value) const;
  // The module that `value` is, null where that cannot be known, and how the input that it is read
  // from writes it: "a.b.".
  std::pair<torch::jit::ObjectPtr, std::string> find(const torch::jit::Value* value) const;

 private:
  std::vector<torch::jit::ObjectPtr> given_;
  std::unordered_map<const torch::jit::Graph*, torch::jit::Node*> forks_;
};

// The module at a dotted path.
torch::jit::Module submodule(const torch::jit::Module& module, const std::string& path);

// The methods and hooks of a module's or an object's class.
std::vector<torch::jit::GraphFunction*> functions_of(const c10::ClassType& type);

// The types of a module and of those below it, each once; and all of their functions.
std::vector<c10::ClassTypePtr> types_of(const torch::jit::Module& module);
std::vector<torch::jit::GraphFunction*> functions_of(const torch::jit::Module& module);

// Attributes by class and name.
using Assigned = std::set<std::pair<const c10::Type*, std::string>>;

// What the methods of a module, and the methods and hooks of all below it, assign. Hooks of the
// module itself run around its call, before the program reads an attribute or after it.
Assigned assigned_attributes(const torch::jit::ObjectPtr& self);

}  // namespace jit_amp
