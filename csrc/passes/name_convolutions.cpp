#include "passes/name_convolutions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/graph_rewrite_helper.h>

#include <vector>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// A traced convolution has its lists made in the graph, where the rewriting wants constants.
void make_lists_constant(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::_convolution) {
      continue;
    }
    const WithInsertPoint here(node);
    Graph* owner = node->owningGraph();  // a fork's, perhaps
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
        node->replaceInput(i, owner->insertConstant(list));
      }
    }
  }
}

}  // namespace

bool name_convolutions(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<std::shared_ptr<Graph>> graphs{graph};
  bool is_traced = false;
  for (Node* node : all_nodes(*graph)) {
    is_traced |= node->kind() == aten::_convolution;
    if (node->kind() == prim::fork) {
      graphs.push_back(node->g(attr::Subgraph));
    }
  }
  if (is_traced) {
    make_lists_constant(*graph);
    for (auto& each : graphs) {
      graph_rewrite_helper::replaceConvolutionWithAtenConv(each);
    }
  }
  return is_traced;
}

}  // namespace jit_amp
