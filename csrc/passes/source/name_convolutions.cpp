#include "passes/source/name_convolutions.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/graph_rewrite_helper.h>

#include <algorithm>
#include <vector>

#include "core/dialect.h"
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

Node* renamed(Node* node, Symbol kind) {
  Node* other = node->owningGraph()->create(kind, node->inputs(), 1)->insertBefore(node);
  other->copyMetadata(node);
  other->copyAttributes(*node);
  other->output()->setType(node->output()->type());
  node->output()->replaceAllUsesWith(other->output());
  node->destroy();
  return other;
}

// Hides convolutions of which a list or a switch is known at run time only: PyTorch's rewriting
// takes it that all of them are constants.
std::vector<Node*> hide_unknown(Graph& graph) {
  constexpr size_t kTensors = 3;  // of aten::_convolution: input, weight, bias
  std::vector<Node*> hidden;
  for (Node* node : all_nodes(graph)) {
    const auto is_unknown = [](const Value* value) { return !toIValue(value); };
    if (node->kind() == aten::_convolution) {
      const auto rest = node->inputs().slice(kTensors);
      if (std::any_of(rest.begin(), rest.end(), is_unknown)) {
        hidden.push_back(renamed(node, ops::hidden));
      }
    }
  }
  return hidden;
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
    const auto hidden = hide_unknown(*graph);
    for (auto& each : graphs) {
      graph_rewrite_helper::replaceConvolutionWithAtenConv(each);
    }
    for (Node* node : hidden) {
      renamed(node, aten::_convolution);
    }
  }
  return is_traced;
}

}  // namespace jit_amp
