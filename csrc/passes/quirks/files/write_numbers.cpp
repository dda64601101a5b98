#include "passes/quirks/files/write_numbers.h"

#include <ATen/ATen.h>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_number(const Value* value) {
  const at::Tensor* tensor = tensor_in(value->node());
  return tensor && tensor->unsafeGetTensorImpl()->is_wrapped_number();
}

bool write_operand(Node* node, size_t at) {
  Value* tensor = node->input(at);
  const WithInsertPoint here(node);
  Value* number =
      node->owningGraph()->insertConstant(c10::IValue(tensor_in(tensor->node())->item()));
  node->replaceInput(at, number);
  if (node->maybeSchema()) {
    return true;
  }
  node->replaceInput(at, tensor);
  number->node()->destroy();
  return false;
}

}  // namespace

bool write_numbers(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (!node->kind().is_aten() || !node->maybeSchema()) {
      continue;
    }
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (is_number(node->input(i))) {
        changed |= write_operand(node, i);
      }
    }
  }
  return changed;
}

}  // namespace jit_amp
