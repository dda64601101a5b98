// Graphs as objects that others hold.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Everything in `graph` becomes a copy of what is in `from`; the object, which others hold, stays.
inline void replace_contents(torch::jit::Graph& graph, torch::jit::Graph& from) {
  torch::jit::Block* block = graph.block();
  while (!block->outputs().empty()) {
    block->eraseOutput(block->outputs().size() - 1);
  }
  std::vector<torch::jit::Node*> doomed(block->nodes().begin(), block->nodes().end());
  for (auto node = doomed.rbegin(); node != doomed.rend(); ++node) {
    (*node)->destroy();
  }
  while (!block->inputs().empty()) {
    block->eraseInput(block->inputs().size() - 1);
  }
  block->cloneFrom(from.block(), nullptr);
}

}  // namespace jit_amp
