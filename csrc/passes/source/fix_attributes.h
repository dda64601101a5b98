// fix_attributes: what a scope takes from the module it runs on.
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
#include <string>
#include <vector>

namespace jit_amp {

// One attribute that was read, and what it was. It says nothing of which instance it was read on:
// what was lowered holds for each on which all that was read is the same.
struct Read {
  std::vector<size_t> slots;  // of the submodules on the way from `self`, then the attribute's
  c10::IValue value;
  std::string path;  // as `self` writes it: "encoder.flag"

  bool holds_on(const torch::jit::ObjectPtr& self) const;
};

// `self` may be null: a function. Throws AutocastError: an attribute that a scope rests on and the
// module's code assigns.
std::vector<Read> read_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                  const torch::jit::ObjectPtr& self);

}  // namespace jit_amp
