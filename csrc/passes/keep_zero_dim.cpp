#include "passes/keep_zero_dim.h"

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

bool keep_zero_dim(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    const bool is_canonicalized = node->kind() == aten::add || node->kind() == aten::sub ||
                                  node->kind() == aten::mul || node->kind() == aten::div;
    const at::Tensor* other = is_canonicalized ? tensor_in(node->input(1)->node()) : nullptr;
    if (other && other->dim() == 0) {
      const WithInsertPoint here(node);
      node->replaceInput(1, node->owningGraph()->insert(aten::detach, {node->input(1)}));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
