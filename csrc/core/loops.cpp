#include "core/loops.h"

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Returns whether there was anything to mark.
bool mark_value(Value* value, Node* before) {
  // Autocast objects are for scopes to see.
  if (is_plain(value->type()) || is_autocast_class(value->type()) || !value->hasUses()) {
    return false;
  }
  Node* carried = before->owningGraph()->create(ops::carried, 1);
  carried->insertBefore(before);
  carried->output()->setType(value->type());
  value->replaceAllUsesWith(carried->output());
  carried->addInput(value);
  return true;
}

}  // namespace

bool mark_loops(Graph& graph) {
  bool changed = false;
  for (Node* loop : all_nodes(graph, prim::Loop)) {
    for (Value* input : loop->blocks()[0]->inputs()) {
      changed |= mark_value(input, loop->blocks()[0]->nodes().front());
    }
    for (Value* result : loop->outputs()) {
      changed |= mark_value(result, loop->next());
    }
  }
  return changed;
}

bool unmark_loops(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph, ops::carried)) {
    node->output()->replaceAllUsesWith(node->input());
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
