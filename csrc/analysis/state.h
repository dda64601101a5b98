// state: which attributes of a module are state, though PyTorch's freezing takes them for
// constants.
//
// It sees writes to an attribute itself (torch/csrc/jit/passes/freeze_module.cpp), and not those to
// the tensors in a list, a dictionary, a tuple or an object: two lists that are equal at first
// become one constant. Nor those of batch_norm and instance_norm to running statistics: what reads
// these is computed when freezing. And it refuses a list, or the like, that holds what another
// attribute is or holds too. Told to keep such attributes it does neither.
//
// An analysis: the graph does not change. Not seen: what tasks write.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <string>
#include <vector>

namespace jit_amp {

// How `self`, the graph's first input, writes them: "a.b".
std::vector<std::string> state_attributes(const std::shared_ptr<torch::jit::Graph>& graph,
                                          const torch::jit::Module& self);

}  // namespace jit_amp
