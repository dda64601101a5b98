#include "passes/quirks/autodiff/promote_operands.h"

#include <torch/csrc/jit/ir/constants.h>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Arithmetic of two tensors that promotes them, and that PyTorch's executor differentiates itself
// (torch/csrc/jit/runtime/symbolic_script.cpp).
bool is_arithmetic(const Node* node) {
  return traits_of(node).group == Group::arithmetic && is_tensor(node->input(0)->type()) &&
         is_tensor(node->input(1)->type());
}

// Whether the operator casts an operand of the dtype to `wide`, which holds all that it can hold.
bool is_widened(std::optional<c10::ScalarType> dtype, c10::ScalarType wide) {
  return dtype && *dtype != wide && c10::isFloatingType(*dtype) && c10::isFloatingType(wide) &&
         c10::promoteTypes(*dtype, wide) == wide;
}

}  // namespace

bool promote_operands(const std::shared_ptr<Graph>& graph, Facts& facts) {
  bool changed = false;
  for (Node* node : all_nodes(*graph)) {
    if (!is_arithmetic(node)) {
      continue;
    }
    const auto wide = facts.of(node->output()).dtype();
    for (size_t i = 0; i < 2; ++i) {
      Value* operand = node->input(i);
      if (!wide || !is_widened(facts.of(operand).dtype(), *wide)) {
        continue;
      }
      Graph* owner = node->owningGraph();
      const WithInsertPoint here(node);
      Value* cast = owner->insert(
          aten::to, {operand, static_cast<int64_t>(*wide), false, false, c10::IValue()});
      cast->node()->copyMetadata(node);
      Fact known = facts.of(operand);
      known.dtypes = DTypes::only(*wide);
      facts.set(cast, AbstractValue::of_tensor(known));
      node->replaceInput(i, cast);
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
