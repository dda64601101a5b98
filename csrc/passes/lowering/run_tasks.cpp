#include "passes/lowering/run_tasks.h"

#include <algorithm>
#include <vector>

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// What an object holds is read as an attribute.
bool holds_future(const c10::TypePtr& type) {
  if (type->kind() == c10::TypeKind::ClassType) {
    return false;
  }
  const auto inside = type->containedTypes();
  return type->kind() == c10::TypeKind::FutureType ||
         std::any_of(inside.begin(), inside.end(), holds_future);
}

template <typename Values>
bool any_holds_future(const Values& values) {
  return std::any_of(values.begin(), values.end(),
                     [](const Value* value) { return holds_future(value->type()); });
}

// Whether the node has a future that is of no task of this graph's: from an attribute, from what is
// called, or from where types do not tell of it, such as an argument that is Any.
bool brings_future(const Node* node) {
  if (!any_holds_future(node->outputs()) || node->kind() == prim::fork) {
    return false;
  }
  const bool is_made_here = node->inputs().empty() || !node->blocks().empty();
  return is_call(node) || !(is_made_here || any_holds_future(node->inputs()));
}

std::vector<Node*> forks_of(Graph& graph) {
  std::vector<Node*> found = all_nodes(graph, prim::fork);
  std::erase_if(found, [&](const Node* fork) { return fork->owningGraph() != &graph; });
  return found;
}

}  // namespace

bool can_run_tasks(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return !any_holds_future(graph.inputs()) &&
         std::none_of(nodes.begin(), nodes.end(), brings_future);
}

bool run_tasks(Graph& graph) {
  bool changed = false;
  // What a task starts itself is found once the task is part of the graph.
  for (auto forks = forks_of(graph); !forks.empty(); forks = forks_of(graph)) {
    for (Node* fork : forks) {
      const WithInsertPoint here(fork);
      const auto results = insertGraph(graph, *fork->g(attr::Subgraph), fork->inputs());
      Node* completed = graph.insertNode(graph.create(ops::completed, results, 1));
      completed->copyMetadata(fork);
      completed->output()->copyMetadata(fork->output());
      fork->output()->replaceAllUsesWith(completed->output());
      fork->destroy();
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
