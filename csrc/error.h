// AutocastError: the one exception by which jit_amp refuses a program.
//
// Its text always has three parts: what is not supported, the user's source underlined, and what to
// write instead. Python sees it as jit_amp.AutocastError, a RuntimeError.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>
#include <string>

namespace jit_amp {

struct AutocastError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The nearest node to `node` that has a line of source: itself, what makes its operands, what comes
// before it, what it is part of.
inline const torch::jit::Node* located(const torch::jit::Node* node) {
  const auto has_line = [](const torch::jit::Node* n) {
    return n->sourceRange().source() != nullptr;
  };
  while (node && !has_line(node)) {
    for (const torch::jit::Value* input : node->inputs()) {
      if (has_line(input->node()) && input->node()->kind() != torch::jit::prim::Constant) {
        return input->node();
      }
    }
    const torch::jit::Node* before = node;
    while (before->prev() != node->owningBlock()->param_node() && !has_line(before)) {
      before = before->prev();
    }
    node = has_line(before) ? before : node->owningBlock()->owningNode();
  }
  return node;
}

// The error that refuses `node`: its source line is the one that is shown.
inline AutocastError refusal(const torch::jit::Node* node, const std::string& what,
                             const std::string& instead) {
  std::ostringstream text;
  text << "jit_amp: " << what << "\n\n";
  if (const torch::jit::Node* shown = located(node)) {
    shown->sourceRange().highlight(text);
  }
  text << "\nInstead: " << instead;
  return AutocastError(text.str());
}

}  // namespace jit_amp
