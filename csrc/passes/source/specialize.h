// specialize: a definition's graph, with what is known where it is to stand.
//
// Operands of `node` that are constants become constants of the definition, and a list that is made
// of values, and that nothing writes to, is there that list. Then what follows from that is done
// when compiling: a function of the definition that takes no tensors is run on constants, `for`
// loops of known length are unrolled (`while` loops are not), branches are chosen. All calls are
// inlined, except those of `lowered`, which become `jit_amp::cast` by way of `lower`. What a
// function whose name begins with `outside_` calls is marked with kOutside.
//
// Definitions do not write to their operands, nor to what they pass to functions of theirs.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

namespace jit_amp {

// Attribute of a node that stands free of the scope that its definition is for.
inline const c10::Symbol kOutside = c10::Symbol::attr("outside");

// Lists, by their graph and number.
using Lists = std::set<std::pair<const torch::jit::Graph*, size_t>>;

// The lists that are made in `graph`, not in a task's, and that nothing writes to.
Lists fixed_lists(const std::shared_ptr<torch::jit::Graph>& graph);

// `body` is as TorchScript compiled it, and takes the operands of `node`. `lower` gives the value
// that stands for one of the body's, at the insertion point. Returns the operands that the
// specialized body takes.
std::vector<torch::jit::Value*> specialize(
    std::shared_ptr<torch::jit::Graph>& body, torch::jit::Node* node, const Lists& fixed,
    const std::function<torch::jit::Value*(torch::jit::Value*)>& lower);

}  // namespace jit_amp
