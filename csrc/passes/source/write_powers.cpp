#include "passes/source/write_powers.h"

#include <algorithm>
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

bool is_augmented(const Node* node) {
  return without_asides(node->sourceRange().text().str()).find("**=") != std::string::npos;
}

}  // namespace

bool write_powers(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::pow || node->inputs().size() != 2 ||
        !is_tensor(node->input(0)->type()) || !is_augmented(node)) {
      continue;
    }
    Node* writing = node->owningGraph()->create(aten::pow_, node->inputs(), 1)->insertBefore(node);
    writing->copyMetadata(node);
    writing->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(writing->output());
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
