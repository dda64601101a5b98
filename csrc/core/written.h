// What of a program's own, constants and attributes, a graph may write to.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace jit_amp {

// The constants that the graph may write to: tensors, and what holds a tensor, list or object that
// it may write to.
std::vector<torch::jit::Node*> written_constants(const std::shared_ptr<torch::jit::Graph>& graph);

// The reads of modules' attributes that hold, as lists, dictionaries, tuples and objects do, what
// the graph may write to.
std::vector<torch::jit::Node*> written_containers(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
