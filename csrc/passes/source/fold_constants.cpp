#include "passes/source/fold_constants.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

namespace jit_amp {
namespace {

using namespace torch::jit;

// `x is None` and `x is not None`, where the type of x says. PyTorch's peephole pass knows too, and
// costs more than all else here.
bool answer_none_checks(Block* block) {
  bool changed = false;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      changed |= answer_none_checks(inner);
    }
    const bool is = node->kind() == aten::__is__;
    if ((!is && node->kind() != aten::__isnot__) || node->inputs().size() != 2) {
      continue;
    }
    const Value* none = node->input(node->input(0)->mustBeNone() ? 0 : 1);
    const Value* other = node->input(none == node->input(0) ? 1 : 0);
    if (none->mustBeNone() && (other->mustBeNone() || other->mustNotBeNone())) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(
          node->owningGraph()->insertConstant(is == other->mustBeNone()));
      changed = true;
    }
  }
  return changed;
}

// A forked task's operands that are constants become constants in it.
bool hand_in_constants(Block* block) {
  bool changed = false;
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      changed |= hand_in_constants(inner);
    }
    if (node->kind() != prim::fork) {
      continue;
    }
    const auto task = node->g(attr::Subgraph);
    for (size_t i = node->inputs().size(); i-- > 0;) {
      if (const auto constant = toIValue(node->input(i))) {
        const WithInsertPoint first(*task->nodes().begin());
        task->inputs()[i]->replaceAllUsesWith(task->insertConstant(*constant));
        task->eraseInput(i);
        node->removeInput(i);
        changed = true;
      }
    }
    changed |= fold_constants(task);
  }
  return changed;
}

}  // namespace

bool fold_constants(const std::shared_ptr<Graph>& graph) {
  bool changed = answer_none_checks(graph->block());
  auto folded = graph;
  changed |= ConstantPropagationImmutableTypes(folded);
  changed |= hand_in_constants(graph->block());
  return changed;
}

}  // namespace jit_amp
