#include "passes/freeze/merge_branches.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>

#include <algorithm>
#include <vector>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether the node may be left out, or run in another place: it does nothing but make its results.
bool computes_alone(const Node* node) {
  return node->blocks().empty() && !node->hasSideEffects() && !node->isNondeterministic() &&
         !may_write(node);
}

bool computes_alone(const Block* block) {
  return std::all_of(block->nodes().begin(), block->nodes().end(),
                     [](const Node* node) { return computes_alone(node); });
}

bool is_same_constant(const Value* one, const Value* other) {
  const auto a = toIValue(one), b = toIValue(other);
  return a && b && is_plain(one->type()) && a->tagKind() == b->tagKind() && *a == *b;
}

// Whether two values, of the two sides, are the same.
bool is_same_value(const Value* one, const Value* other, const Node* choice) {
  const Node *a = one->node(), *b = other->node();
  if (one == other || is_same_constant(one, other)) {
    return true;
  }
  const auto is_in = [&](const Node* node, size_t side) {
    return node->owningBlock() == choice->blocks()[side];
  };
  const bool are_made_here =
      (is_in(a, 0) && is_in(b, 1)) || (is_fixed_list(one) && is_fixed_list(other));
  if (!are_made_here || a->kind() != b->kind() || a->kind() == prim::Param ||
      one->offset() != other->offset() || a->hasAttributes() || b->hasAttributes() ||
      a->inputs().size() != b->inputs().size()) {
    return false;
  }
  for (size_t i = 0; i < a->inputs().size(); ++i) {
    if (!is_same_value(a->input(i), b->input(i), choice)) {
      return false;
    }
  }
  return true;
}

bool has_same_sides(const Node* choice) {
  const Block *one = choice->blocks()[0], *other = choice->blocks()[1];
  bool is_equal = computes_alone(one) && computes_alone(other);
  for (size_t i = 0; is_equal && i < choice->outputs().size(); ++i) {
    is_equal = is_same_value(one->outputs()[i], other->outputs()[i], choice);
  }
  return is_equal;
}

void take_first_side(Node* choice) {
  Block* side = choice->blocks()[0];
  for (Node* node : std::vector<Node*>(side->nodes().begin(), side->nodes().end())) {
    node->moveBefore(choice);
  }
  for (size_t i = 0; i < choice->outputs().size(); ++i) {
    choice->output(i)->replaceAllUsesWith(side->outputs()[i]);
  }
  choice->destroy();
}

}  // namespace

bool merge_branches(const std::shared_ptr<Graph>& graph) {
  auto nodes = all_nodes(*graph);
  bool changed = false;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {  // inner ones first
    if ((*node)->kind() == prim::If && has_same_sides(*node)) {
      take_first_side(*node);
      changed = true;
    }
  }
  if (changed) {
    EliminateDeadCode(graph);
  }
  return changed;
}

}  // namespace jit_amp
