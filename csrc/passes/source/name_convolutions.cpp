#include "passes/source/name_convolutions.h"

#include <torch/csrc/jit/ir/constants.h>

#include <initializer_list>
#include <string>
#include <vector>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The operands of aten::_convolution.
enum Operand : uint8_t {
  kInput,
  kWeight,
  kBias,
  kStride,
  kPadding,
  kDilation,
  kTransposed,
  kOutputPadding,
  kGroups
};

// A traced convolution has its lists made in the graph.
void make_lists_constant(Node* node) {
  const WithInsertPoint here(node);
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    const Node* made = node->input(i)->node();
    c10::List<int64_t> list;
    if (made->kind() != prim::ListConstruct) {
      continue;
    }
    for (const Value* element : made->inputs()) {
      if (const auto constant = constant_as<int64_t>(element)) {
        list.push_back(*constant);
      }
    }
    if (list.size() == made->inputs().size()) {
      node->replaceInput(i, node->owningGraph()->insertConstant(list));
    }
  }
}

// How many numbers are in a list; 0 where only a run can tell.
size_t length_of(const Value* list) {
  if (list->node()->kind() == prim::ListConstruct) {
    return list->node()->inputs().size();
  }
  const auto constant = toIValue(list);
  return constant && constant->isIntList() ? constant->toIntList().size() : 0;
}

// The operator that was called, with its operands in its order; null where only a run can tell.
Node* as_called(Node* node) {
  const size_t dimensions = length_of(node->input(kStride));
  const auto transposed = constant_as<bool>(node->input(kTransposed));
  if (dimensions < 1 || dimensions > 3 || !transposed) {
    return nullptr;
  }
  std::vector<Value*> operands;
  const auto take = [&](std::initializer_list<Operand> names) {
    for (const Operand name : names) {
      operands.push_back(node->input(name));
    }
  };
  take({kInput, kWeight, kBias, kStride, kPadding});
  if (*transposed) {
    take({kOutputPadding, kGroups, kDilation});
  } else {
    take({kDilation, kGroups});
  }
  const std::string name = *transposed ? "aten::conv_transpose" : "aten::conv";
  const auto kind = Symbol::fromQualString(name + std::to_string(dimensions) + "d");
  Node* called = node->owningGraph()->create(kind, operands, 1)->insertBefore(node);
  called->copyMetadata(node);
  called->output()->setType(node->output()->type());
  return called;
}

}  // namespace

bool name_convolutions(const std::shared_ptr<torch::jit::Graph>& graph) {
  bool changed = false;
  for (Node* node : all_nodes(*graph)) {
    if (node->kind() != aten::_convolution || node->inputs().size() <= kGroups) {
      continue;
    }
    make_lists_constant(node);
    if (Node* called = as_called(node)) {
      node->output()->replaceAllUsesWith(called->output());
      node->destroy();
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
