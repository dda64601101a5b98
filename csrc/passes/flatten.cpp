#include "passes/flatten.h"

#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/peephole.h>

#include <regex>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "error.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Inlines calls depth first; each callee is flattened once however often it is called.
class Flattener {
 public:
  std::shared_ptr<Graph> body(GraphFunction& function, const Node* call) {
    if (auto done = done_.find(&function); done != done_.end()) {
      return done->second;
    }
    if (!open_.insert(&function).second) {
      throw refusal(call, "a function that calls itself", "a loop; TorchScript has no recursion");
    }
    function.ensure_defined();
    auto graph = function.graph()->copy();
    inline_calls(graph->block());
    open_.erase(&function);
    done_.emplace(&function, graph);
    return graph;
  }

 private:
  void inline_calls(Block* block) {
    std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
    for (Node* node : nodes) {
      for (Block* inner : node->blocks()) {
        inline_calls(inner);
      }
      if (node->hasAttribute(attr::Subgraph)) {
        inline_calls(node->g(attr::Subgraph)->block());
      }
      if (node->kind() != prim::CallFunction && node->kind() != prim::CallMethod) {
        continue;
      }
      if (node->kind() == prim::CallMethod && is_autocast_class(node->input(0)->type())) {
        continue;
      }
      if (GraphFunction* callee = tryToGraphFunction(node)) {
        auto graph = body(*callee, node);
        if (node->kind() == prim::CallFunction) {
          node->removeInput(0);
        }
        inlineCallTo(node, callee, graph.get());
      }
    }
  }

  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> done_;
  std::unordered_set<GraphFunction*> open_;
};

}  // namespace

bool is_autocast_class(const c10::TypePtr& type) {
  auto cls = type->cast<c10::ClassType>();
  if (!cls || !cls->name()) {
    return false;
  }
  static const std::regex mangling("\\.___torch_mangle_[0-9]+");
  static const std::unordered_set<std::string> names{
      "__torch__.torch.amp.autocast_mode.autocast", "__torch__.torch.autocast_mode.autocast",
      "__torch__.torch.cuda.amp.autocast_mode.autocast",
      "__torch__.torch.cpu.amp.autocast_mode.autocast"};
  return names.count(std::regex_replace(cls->name()->qualifiedName(), mangling, "")) != 0;
}

std::shared_ptr<torch::jit::Graph> flatten(torch::jit::GraphFunction& function) {
  auto graph = Flattener().body(function, nullptr);
  PeepholeOptimize(graph, /*disable_shape_peepholes=*/true);
  ConstantPropagationImmutableTypes(graph);
  ConstantPooling(graph);
  return graph;
}

}  // namespace jit_amp
