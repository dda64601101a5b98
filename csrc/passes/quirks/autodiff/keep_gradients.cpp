#include "passes/quirks/autodiff/keep_gradients.h"

#include <torch/csrc/jit/runtime/symbolic_script.h>

#include <vector>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool has_a_formula(Node* node) {
  const FunctionSchema* schema = node->maybeSchema();
  return schema && (node->kind() == aten::dropout || hasGradientInfoForSchema(*schema));
}

}  // namespace

bool keep_gradients(Graph& graph) {
  static const auto kGrad = Symbol::aten("grad");
  if (!contains(graph, kGrad) && !contains(graph, aten::backward)) {
    return false;
  }
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (!has_a_formula(node)) {
      continue;
    }
    for (Value* result : node->outputs()) {
      if (!is_tensor(result->type()) || !result->hasUses()) {
        continue;
      }
      Node* alias = node->owningGraph()->create(aten::alias, 1);
      alias->insertAfter(node);
      alias->copyMetadata(node);
      result->replaceAllUsesWith(alias->output());
      alias->addInput(result);
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
