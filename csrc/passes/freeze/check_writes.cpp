#include "passes/freeze/check_writes.h"

#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <set>
#include <vector>

#include "core/error.h"
#include "core/graphs.h"
#include "core/loops.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

const Symbol kNumber = Symbol::attr("number_of_write");

// The numbers of the writes that are left when dead code has gone.
std::set<int64_t> left(const std::shared_ptr<Graph>& graph) {
  EliminateDeadCode(graph);
  std::set<int64_t> numbers;
  for (const Node* node : all_nodes(*graph)) {
    if (node->hasAttribute(kNumber)) {
      numbers.insert(node->i(kNumber));
    }
  }
  return numbers;
}

}  // namespace

void check_writes(const std::shared_ptr<Graph>& graph) {
  if (!contains(*graph, prim::Loop) || !may_write(graph->block())) {
    return;
  }
  std::vector<Node*> writes;
  for (Node* node : all_nodes(*graph)) {
    if (is_write(node) || updates_statistics(node)) {
      node->i_(kNumber, static_cast<int64_t>(writes.size()));
      writes.push_back(node);
    }
  }
  const auto unmarked = graph->copy();
  unmark_loops(*unmarked);
  const auto without = left(unmarked);
  const auto with = left(graph->copy());
  for (Node* node : writes) {
    node->removeAttribute(kNumber);
  }
  for (size_t i = 0; i < writes.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    if (with.count(number) && !without.count(number)) {
      throw diagnostic(Diagnostic::write_dropped_after_loop, writes[i]);
    }
  }
}

}  // namespace jit_amp
