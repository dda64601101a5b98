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

// The operator that Python calls, if the node is one of these assignments.
std::optional<Symbol> of_python(const Node* node) {
  const bool is_power = node->kind() == aten::pow;
  if (!(is_power || node->kind() == aten::fmod_) || node->inputs().size() != 2 ||
      !is_tensor(node->input(0)->type())) {
    return std::nullopt;
  }
  const std::string code = without_asides(node->sourceRange().text().str());
  if (code.find(is_power ? "**=" : "%=") == std::string::npos) {
    return std::nullopt;
  }
  return is_power ? aten::pow_ : aten::remainder_;
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
