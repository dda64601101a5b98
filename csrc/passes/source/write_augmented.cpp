#include "passes/source/write_augmented.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

namespace {

// The code of a text without its comments and strings.
std::string without_asides(const std::string& text) {
  std::string code;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (text[i] == '"' || text[i] == '\'') {
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i) {
        i += text[i] == '\\';
      }
    } else {
      code += text[i];
    }
  }
  return code;
}

struct Assignment {
  Symbol compiled;   // what TorchScript's compiler makes of it
  const char* text;  // what the line has
  Symbol of_python;
};

const Assignment kAssignments[] = {
    {aten::pow, "**=", aten::pow_},
    {aten::fmod_, "%=", aten::remainder_},
    {aten::bitwise_and, "&=", Symbol::aten("bitwise_and_")},
    {aten::bitwise_or, "|=", Symbol::aten("bitwise_or_")},
    {aten::bitwise_xor, "^=", Symbol::aten("bitwise_xor_")},
};

// The operator that Python calls, if the node is one of these assignments.
std::optional<Symbol> of_python(const Node* node) {
  for (const Assignment& each : kAssignments) {
    if (node->kind() == each.compiled && node->inputs().size() == 2 &&
        is_tensor(node->input(0)->type()) &&
        without_asides(node->sourceRange().text().str()).find(each.text) != std::string::npos) {
      return each.of_python;
    }
  }
  return std::nullopt;
}

}  // namespace

bool write_augmented(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    const auto kind = of_python(node);
    if (!kind) {
      continue;
    }
    Node* writing = node->owningGraph()->create(*kind, node->inputs(), 1)->insertBefore(node);
    writing->copyMetadata(node);
    writing->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(writing->output());
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
