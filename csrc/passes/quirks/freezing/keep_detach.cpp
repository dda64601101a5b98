#include "passes/quirks/freezing/keep_detach.h"

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool rename(Graph& graph, c10::Symbol from, c10::Symbol to) {
  bool changed = false;
  for (Node* node : all_nodes(graph, from)) {
    node->replaceWithNewSymbol(to);
    node->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace

bool hide_detach(Graph& graph) { return rename(graph, aten::detach, ops::detached); }

bool show_detach(Graph& graph) { return rename(graph, ops::detached, aten::detach); }

}  // namespace jit_amp
