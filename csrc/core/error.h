// AutocastError: the one exception by which jit_amp refuses a program.
//
// Its text always has three parts: what is not supported, the user's source underlined, and what to
// write instead. Python sees it as jit_amp.AutocastError, a RuntimeError.
#pragma once

#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/ir/ir.h>

#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace jit_amp {

struct AutocastError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The nearest node to `node` that has a line of source: itself, what makes its operands, what comes
// before it, what it is part of, and in the end any node of its graph.
inline const torch::jit::Node* located(const torch::jit::Node* node) {
  using torch::jit::Node;
  const auto has_line = [](const Node* n) { return n->sourceRange().source() != nullptr; };
  const Node* origin = node;
  for (int steps = 0; steps < 4 && origin && !has_line(origin); ++steps) {
    const Node* next = nullptr;
    for (const torch::jit::Value* input : origin->inputs()) {
      if (input->node()->kind() == torch::jit::prim::Enter ||
          input->node()->kind() == torch::jit::prim::CreateObject) {
        next = input->node();
        break;
      }
    }
    origin = next;
  }
  if (origin && has_line(origin)) {
    return origin;
  }
  for (const Node* around = node; around; around = around->owningBlock()->owningNode()) {
    for (const Node* before = around; before != around->owningBlock()->param_node();
         before = before->prev()) {
      if (has_line(before)) {
        return before;
      }
    }
  }
  for (const Node* any : node->owningGraph()->nodes()) {
    if (has_line(any)) {
      return any;
    }
  }
  return nullptr;
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

// What PyTorch's own code says of a graph, as a refusal.
inline AutocastError unfit(std::string what) {
  const size_t assertion = what.find(" INTERNAL ASSERT");
  if (assertion != std::string::npos) {
    what = "an internal assertion on `" + what.substr(0, assertion) + "`";
  }
  return AutocastError("jit_amp: PyTorch's own passes fail on this graph\n\n  " + what +
                       "\n\nInstead: a graph that torch.jit.script or torch.jit.load made");
}

// Runs `work`, which analyses and rewrites a graph: what PyTorch's own code says of the graph is a
// refusal. Anything else that goes wrong is a fault of ours, and is not put on the user.
template <typename Work>
auto refusing_unfit_graphs(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    throw unfit(error.what_without_backtrace());
  } catch (const torch::jit::ErrorReport& error) {
    throw unfit(error.what());
  }
}

}  // namespace jit_amp
