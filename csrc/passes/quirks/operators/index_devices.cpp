#include "passes/quirks/operators/index_devices.h"

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

bool index_devices(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph, aten::device)) {
    if (node->inputs().size() != 2) {
      continue;
    }
    const WithInsertPoint here(node);
    Graph& owner = *node->owningGraph();
    Value* name =
        owner.insert(aten::format, {std::string("{}:{}"), node->input(0), node->input(1)});
    node->removeAllInputs();
    node->addInput(name);
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
