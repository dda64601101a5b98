#include "passes/quirks/keep_detach.h"

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool rename(Graph& graph, c10::Symbol from, c10::Symbol to) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != from) {
      continue;
    }
    Node* renamed = graph.create(to, node->inputs(), 1)->insertBefore(node);
    renamed->copyMetadata(node);
    renamed->output()->copyMetadata(node->output());
    node->output()->replaceAllUsesWith(renamed->output());
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace

bool hide_detach(Graph& graph) { return rename(graph, aten::detach, ops::detached); }

bool show_detach(Graph& graph) { return rename(graph, ops::detached, aten::detach); }

}  // namespace jit_amp
