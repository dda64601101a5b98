#include "passes/loops.h"

#include "passes/flatten.h"
#include "passes/subgraphs.h"
#include "runtime/ops.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

void mark(Value* value, Node* before) {
  // Autocast objects are for scopes to see.
  if (is_plain(value->type()) || is_autocast_class(value->type()) || !value->hasUses()) {
    return;
  }
  Node* carried = before->owningGraph()->create(ops::carried, 1);
  carried->insertBefore(before);
  carried->output()->setType(value->type());
  value->replaceAllUsesWith(carried->output());
  carried->addInput(value);
}

}  // namespace

void mark_loops(Graph& graph) {
  for (Node* loop : all_nodes(graph)) {
    if (loop->kind() != prim::Loop) {
      continue;
    }
    for (Value* input : loop->blocks()[0]->inputs()) {
      mark(input, loop->blocks()[0]->nodes().front());
    }
    for (Value* result : loop->outputs()) {
      mark(result, loop->next());
    }
  }
}

void unmark_loops(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == ops::carried) {
      node->output()->replaceAllUsesWith(node->input());
      node->destroy();
    }
  }
}

void keep_loops_apart(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == prim::Loop && node->outputs().size() == 1) {
      node->owningGraph()->create(ops::loop_done, 0)->insertAfter(node);
    }
  }
}

}  // namespace jit_amp
