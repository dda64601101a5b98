#include "passes/keep_dim.h"

#include <vector>

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

bool keep_dim(Graph& graph) {
  std::vector<Node*> questions;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == aten::dim) {
      const auto of = node->input()->node()->kind();
      if (of == aten::conv1d || of == aten::conv2d || of == aten::conv3d) {
        questions.push_back(node);
      }
    }
  }
  for (Node* node : questions) {
    const WithInsertPoint here(node);
    Graph& owner = *node->owningGraph();
    Value* size = owner.insert(aten::size, {node->input()}, {}, node->sourceRange());
    node->output()->replaceAllUsesWith(owner.insert(aten::len, {size}, {}, node->sourceRange()));
    node->destroy();
  }
  return !questions.empty();
}

}  // namespace jit_amp
