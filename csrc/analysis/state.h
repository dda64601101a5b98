// state: which attributes of a module are state, though PyTorch's freezing takes them for
// constants.
//
// PyTorch's freezing sees writes to an attribute itself (torch/csrc/jit/passes/freeze_module.cpp),
// and not those to the tensors in a list, a dictionary, a tuple or an object: two lists that are
// equal at first become one constant. Nor those of batch_norm and instance_norm to running
// statistics, nor those of tasks: what reads these is computed when freezing. And it refuses a
// list, or the like, that holds what another attribute is or holds too. If it is told to preserve
// such attributes, it does neither.
//
// An analysis: the graphs do not change.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

namespace jit_amp {

struct FlatMethod {
  std::shared_ptr<torch::jit::Graph> graph;  // without calls
  torch::jit::Module self;                   // its first input
  std::string path;                          // of that, from the module that is frozen: "", "a.b."
};

// How the module that is frozen writes them: "a.b.c".
std::vector<std::string> state_attributes(const std::vector<FlatMethod>& methods);

}  // namespace jit_amp
