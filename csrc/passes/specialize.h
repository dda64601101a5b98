// specialize: a definition's graph, with what is known where it is to stand.
//
// Operands of `node` that are constants become constants of the definition, and a list that is made
// of values, and that nothing writes to, is there that list. Then what follows from that is done
// when compiling: a function of the definition that takes no tensors is run on constants, `for`
// loops of known length are unrolled (`while` loops are not), branches are chosen. All calls are
// inlined, except those of `lowered`, which become `jit_amp::cast` by way of `lower`.
//
// Definitions do not write to their operands, nor to what they pass to functions of theirs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <set>
#include <vector>

namespace jit_amp {

// Numbers of the lists that are made in `graph`, not in a task's, and that nothing writes to.
std::set<size_t> fixed_lists(const std::shared_ptr<torch::jit::Graph>& graph);

// `body` is as TorchScript compiled it, and takes the operands of `node`. `lower` gives the value
// that stands for one of the body's, at the insertion point. Returns the operands that the
// specialized body takes.
std::vector<torch::jit::Value*> specialize(
    std::shared_ptr<torch::jit::Graph>& body, torch::jit::Node* node, const std::set<size_t>& fixed,
    const std::function<torch::jit::Value*(torch::jit::Value*)>& lower);

}  // namespace jit_amp
