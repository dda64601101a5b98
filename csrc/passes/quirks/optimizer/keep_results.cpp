#include "passes/quirks/optimizer/keep_results.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/node_hashing.h>

#include <functional>
#include <unordered_set>

#include "core/graphs.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

const c10::Symbol& result_mark() {
  static const auto kMark = c10::Symbol::attr("jit_amp_result");
  return kMark;
}

// Whether there can be two results.
bool has_results(const Graph& graph) {
  return graph.outputs().size() != 1 ||
         (!is_tensor(graph.outputs()[0]->type()) && may_hold_tensors(graph.outputs()[0]->type()));
}

class Merger {
 public:
  explicit Merger(const std::shared_ptr<Graph>& graph) : graph_(graph), aliases_(graph) {}

  // Whether equal results were kept apart.
  bool run() {
    run(graph_->block(), [](Node*) -> Node* { return nullptr; });
    return kept_;
  }

 private:
  using Find = std::function<Node*(Node*)>;

  void run(Block* block, const Find& find_around) {
    std::unordered_set<Node*, HashNode, EqualNode> seen;
    const Find find = [&](Node* node) {
      const auto equal = seen.find(node);
      return equal == seen.end() ? find_around(node) : *equal;
    };
    for (auto it = block->nodes().begin(); it != block->nodes().end(); ++it) {
      Node* node = *it;
      for (Block* inner : node->blocks()) {
        run(inner, find);
      }
      if (!node->blocks().empty() || node->kind() == prim::Constant || node->outputs().empty() ||
          node->hasSideEffects() || node->isNondeterministic() || aliases_.hasWriters(node)) {
        continue;
      }
      Node* equal = find(node);
      if (!equal) {
        seen.insert(node);
      } else if (is_result(node) && is_result(equal)) {
        kept_ = true;
      } else if (!aliases_.hasWriters(equal)) {
        if (is_result(node)) {
          results_.insert(equal);
        }
        node->replaceAllUsesWith(equal);
        it.destroyCurrent();
      }
    }
  }

  bool is_result(Node* node) const {
    return results_.count(node) != 0 || aliases_.escapesScope(node->outputs());
  }

  std::shared_ptr<Graph> graph_;
  const AliasDb aliases_;              // of the graph as it came
  std::unordered_set<Node*> results_;  // by what was made one with them
  bool kept_ = false;
};

}  // namespace

bool mark_results(std::shared_ptr<Graph>& graph) {
  if (!has_results(*graph)) {
    return false;
  }
  const AliasDb aliases(graph);
  bool changed = false;
  for (Node* node : all_nodes(*graph)) {
    if (node->owningGraph() == graph.get() && node->blocks().empty() &&
        node->kind() != prim::Constant && !node->outputs().empty() &&
        aliases.escapesScope(node->outputs())) {
      node->i_(result_mark(), 1);
      changed = true;
    }
  }
  return changed;
}

bool unmark_results(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->hasAttribute(result_mark())) {
      node->removeAttribute(result_mark());
      changed = true;
    }
  }
  return changed;
}

bool keep_results(std::shared_ptr<Graph>& graph) {
  if (!has_results(*graph) || !Merger(graph->copy()).run()) {
    return false;
  }
  Merger(graph).run();
  return true;
}

}  // namespace jit_amp
