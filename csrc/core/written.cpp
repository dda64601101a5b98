#include "core/written.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include "core/dialect.h"
#include "core/graphs.h"
#include "core/loops.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_constant(const Node* node) {
  return node->kind() == prim::Constant && !is_plain(node->output()->type());
}

bool is_container(const Node* node) {
  if (node->kind() != prim::GetAttr || !node->input()->type()->is_module()) {
    return false;
  }
  const auto& type = node->output()->type();
  return !type->is_module() && !is_tensor(type) && !is_plain(type);
}

std::vector<Node*> written(const std::shared_ptr<Graph>& graph, bool (*is_asked)(const Node*)) {
  std::vector<Node*> found;
  if (!may_write(graph->block())) {
    return found;
  }
  const bool marks = !contains(*graph, ops::carried) && mark_loops(*graph);
  {
    const AliasDb aliases(graph);
    const auto nodes = all_nodes(*graph);
    const auto is_known = [&](const Node* node) { return node->owningGraph() == graph.get(); };
    std::vector<Value*> targets;  // what is written to
    for (Node* node : nodes) {
      for (Value* value : node->outputs()) {
        if (is_known(node) && !is_plain(value->type()) && aliases.hasWriters(value)) {
          targets.push_back(value);
        }
      }
    }
    for (Node* node : nodes) {
      const auto holds_target = [&] {
        return is_known(node) && !is_tensor(node->output()->type()) &&
               aliases.mayContainAlias(node->output(), targets);
      };
      if (is_asked(node) && (aliases.hasWriters(node) || holds_target())) {
        found.push_back(node);
      }
    }
  }
  if (marks) {
    unmark_loops(*graph);
  }
  return found;
}

}  // namespace

std::vector<Node*> written_constants(const std::shared_ptr<Graph>& graph) {
  return written(graph, is_constant);
}

std::vector<Node*> written_containers(const std::shared_ptr<Graph>& graph) {
  return written(graph, is_container);
}

}  // namespace jit_amp
