// instance: what a scope takes from the module it runs on.
//
// `torch.autocast("cpu", enabled=self.flag)` reads a plain attribute of one instance. When a graph
// is lowered for a known module, such attributes are put in as the constants that they are at that
// moment; what was read is returned, so that a caller can see at its next call whether it still
// holds. Only attributes that a scope's arguments rest on become constants. One that code of the
// module assigns could change while the graph runs, and is refused.
//
// Must run after: flatten. Must run before: scopes.
#pragma once

#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace jit_amp {

// The modules in a graph that runs on `self`, its first input.
class Modules {
 public:
  explicit Modules(torch::jit::ObjectPtr self) : self_(std::move(self)) {}

  // To be called before anything in the fork's subgraph is asked for.
  void enter(torch::jit::Node* fork);
  // The operand of a fork that `value` is in its subgraph; null if it is none.
  torch::jit::Value* outside(const torch::jit::Value* value) const;
  // The module that `value` is, null where that cannot be known, and how `self` writes it: "a.b.".
  std::pair<torch::jit::ObjectPtr, std::string> find(const torch::jit::Value* value) const;

 private:
  torch::jit::ObjectPtr self_;
  std::unordered_map<const torch::jit::Graph*, torch::jit::Node*> forks_;
};

// Attributes by class and name.
using Assigned = std::set<std::pair<const c10::Type*, std::string>>;

// What the methods of a module and of all below it assign.
Assigned assigned_attributes(const torch::jit::ObjectPtr& self);

// One attribute that was read, and what it was.
struct Read {
  c10::weak_intrusive_ptr<c10::ivalue::Object> module;
  size_t slot;
  c10::IValue value;
  std::string path;  // as `self` writes it: "encoder.flag"

  bool still_holds() const;
};

// `self` may be null: a function. Throws AutocastError: an attribute that a scope rests on and the
// module's code assigns.
std::vector<Read> read_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                  const torch::jit::ObjectPtr& self);

}  // namespace jit_amp
