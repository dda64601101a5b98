// answer_questions: what the program asks of its tensors, answered where the facts know.
//
// `x.dtype`, `x.is_floating_point()`, `x.device.type`, `x is None`, `query is key` and the like
// become constants, and PyTorch's constant propagation takes the branches that this decides. The
// facts hold for every input that the frozen module's check lets in, so the branches that go are
// never taken.
//
// Returns whether the graph changed: facts found before are then not those of its new values.
// Loops must be marked. Must run after: decompose.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

bool answer_questions(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

// What `node` gives, if it asks something of a tensor of which `fact` is known; nothing else.
std::optional<c10::IValue> answer(const torch::jit::Node* node, const Fact& fact);

}  // namespace jit_amp
