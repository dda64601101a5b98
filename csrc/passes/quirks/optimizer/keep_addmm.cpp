#include "passes/quirks/optimizer/keep_addmm.h"

#include <torch/csrc/jit/ir/constants.h>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool holds_one(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isScalar() && constant->toScalar().equal(1);
}

}  // namespace

bool keep_addmm(Graph& graph) {
  constexpr size_t kBeta = 3;  // of aten::addmm, before alpha
  bool changed = false;
  for (Node* node : all_nodes(graph, aten::addmm)) {
    if (node->inputs().size() != kBeta + 2 || !holds_one(node->input(kBeta)) ||
        !holds_one(node->input(kBeta + 1))) {
      continue;
    }
    Graph* owner = node->owningGraph();
    const WithInsertPoint here(node);
    Value* dims = owner->insert(aten::dim, {node->input(0)});
    Value* one = owner->insert(aten::Int, {owner->insert(aten::ge, {dims, 0})});
    node->replaceInput(kBeta, one);
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
