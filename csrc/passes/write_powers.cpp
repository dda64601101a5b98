#include "passes/write_powers.h"

#include <string>

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

bool write_powers(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::pow || node->inputs().size() != 2 ||
        node->input(0)->type()->kind() != c10::TypeKind::TensorType ||
        node->sourceRange().text().str().find("**=") == std::string::npos) {
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
