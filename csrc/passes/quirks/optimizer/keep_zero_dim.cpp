#include "passes/quirks/optimizer/keep_zero_dim.h"

#include <ATen/ATen.h>
#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Null if it is none without dimensions.
const at::Tensor* zero_dim_in(const Value* value) {
  const at::Tensor* constant = tensor_in(value->node());
  return constant && constant->dim() == 0 ? constant : nullptr;
}

// Whether the operand's dtype is the result's, be the other a constant without dimensions or a
// number.
bool decides_dtype(const Fact& operand, const at::Tensor& constant) {
  return operand.dims == Dims::some && operand.dtypes.within(DTypes::floating()) &&
         !constant.is_complex();
}

}  // namespace

bool keep_zero_dim(Graph& graph, const Facts& facts) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (traits_of(node).group != Group::arithmetic) {
      continue;
    }
    Value *first = node->input(0), *second = node->input(1);
    const WithInsertPoint here(node);
    if (const at::Tensor* constant = zero_dim_in(second)) {
      if (!decides_dtype(facts.of(first), *constant)) {
        node->replaceInput(1, node->owningGraph()->insert(aten::detach, {second}));
        changed = true;
      }
    } else if (const at::Tensor* constant = zero_dim_in(first)) {
      const Fact other = facts.of(second);
      if (decides_dtype(other, *constant) && other.dtype()) {
        const at::Tensor as_other = constant->to(*other.dtype()).reshape(1);
        node->replaceInput(0, node->owningGraph()->insertConstant(as_other));
        changed = true;
      }
    }
  }
  return changed;
}

}  // namespace jit_amp
