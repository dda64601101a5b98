#include "passes/clean.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "runtime/ops.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

using Key = std::tuple<Value*, Value*, Value*>;  // what is cast, and the two targets

struct Pair {
  Node* first;
  Node* again;
};

// Whether the node may change how a cast is recorded for autograd: entering or leaving no_grad, or
// code that is not seen.
bool changes_mode(const Node* node) {
  const auto inside = [](const Block* block) {
    return std::any_of(block->nodes().begin(), block->nodes().end(), changes_mode);
  };
  return node->kind() == prim::Enter || node->kind() == prim::Exit ||
         node->kind() == Symbol::aten("set_grad_enabled") || node->kind() == prim::PythonOp ||
         node->kind() == prim::CallMethod || node->kind() == prim::CallFunction ||
         node->kind() == ops::scoped_effect ||
         std::any_of(node->blocks().begin(), node->blocks().end(), inside);
}

// Equal casts, each with the one that dominates it. `seen` holds those of the blocks around.
void find_equal(Block* block, std::map<Key, Node*> seen, std::vector<Pair>& pairs) {
  for (Node* node : block->nodes()) {
    if (node->kind() == ops::cast && node->output()->type()->kind() == c10::TypeKind::TensorType) {
      const auto [at, is_new] =
          seen.emplace(Key{node->input(0), node->input(1), node->input(2)}, node);
      if (!is_new) {
        pairs.push_back({at->second, node});
      }
    }
    for (Block* inner : node->blocks()) {
      find_equal(inner, seen, pairs);
    }
    if (changes_mode(node)) {
      seen.clear();
    }
  }
}

// Whether anything in the block may write to a tensor. Where nothing does, AliasDb need not be
// asked.
bool may_write(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(), [](const Node* node) {
    if (std::any_of(node->blocks().begin(), node->blocks().end(), may_write)) {
      return true;
    }
    const FunctionSchema* schema = node->maybeSchema();
    if (!schema) {
      const bool known = node->kind().is_prim() || node->maybeOperator();
      return !known || node->hasSideEffects() || node->kind() == prim::fork;
    }
    const auto& arguments = schema->arguments();
    return std::any_of(arguments.begin(), arguments.end(), [](const c10::Argument& argument) {
      return argument.alias_info() && argument.alias_info()->isWrite();
    });
  });
}

}  // namespace

bool share_casts(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<Pair> pairs;
  find_equal(graph->block(), {}, pairs);
  if (pairs.empty()) {
    return false;
  }
  std::optional<AliasDb> aliases;
  if (may_write(graph->block())) {
    aliases.emplace(graph);
  }
  bool changed = false;
  for (const auto& [first, again] : pairs) {
    if (aliases && aliases->hasWriters(first)) {
      continue;
    }
    again->output()->replaceAllUsesWith(first->output());
    again->destroy();
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
