#include "passes/quirks/onednn/detach_sizes.h"

#include <torch/csrc/jit/runtime/symbolic_shape_registry_util.h>

#include <algorithm>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether oneDNN's fusion would ask a user without an operator, of `tensor` or of what has its
// size.
bool is_asked_in_vain(const Value* tensor, OperatorMap<std::string>& elementwise) {
  return std::any_of(tensor->uses().begin(), tensor->uses().end(), [&](const Use& use) {
    const Operator* known = use.user->maybeOperator();
    if (!known) {
      return true;
    }
    const auto kind = elementwise.find(*known);
    return kind && *kind == "unary" && is_asked_in_vain(use.user->output(), elementwise);
  });
}

}  // namespace

bool detach_sizes(Graph& graph) {
  bool changed = false;
  auto elementwise = get_tensorexpr_elementwise_set();  // a copy: it has no lookup of a constant
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == aten::size && node->inputs().size() == 1 &&
        is_asked_in_vain(node->input(), elementwise)) {
      const WithInsertPoint here(node);
      Node* alias = node->owningGraph()->create(aten::detach, {node->input()}, 1);
      alias->output()->setType(node->input()->type());
      node->replaceInput(0, node->owningGraph()->insertNode(alias)->output());
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
