#include "passes/server/functionalize.h"

#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include "analysis/attention.h"
#include "analysis/traits.h"
#include "core/graphs.h"
#include "passes/quirks/onednn/write_activations.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// What is done in place to the scores of an attention, and what can be done to them before.
bool changes_scores(const Node* node) {
  static const auto kFill = Symbol::aten("masked_fill"), kFillIn = Symbol::aten("masked_fill_");
  return traits_in_place_or_not(node).group == Group::arithmetic || node->kind() == aten::to ||
         node->kind() == kFill || node->kind() == kFillIn;
}

// Whether the node writes to the result of a product of matrices, and the same without a write has
// that dtype.
bool is_on_scores(const Node* node, const Facts& facts) {
  if (!changes_scores(node) || !is_write(node)) {
    return false;
  }
  const Value* scores = node->input(0);
  Fact fact = facts.of(scores);
  while (changes_scores(scores->node())) {
    scores = scores->node()->input(0);
    fact = fact.dtype() ? fact : facts.of(scores);  // what was made just now has no facts
  }
  const Value* other = node->input(1);
  const Fact with = facts.of(other);
  const bool keeps_dtype = traits_in_place_or_not(node).group != Group::arithmetic ||
                           !is_tensor(other->type()) ||
                           (with.dtype() && fact.dtype() &&
                            c10::promoteTypes(*with.dtype(), *fact.dtype()) == *fact.dtype());
  return is_batched_product(scores->node()) && keeps_dtype && fact.device == c10::DeviceType::CPU &&
         fact.dtype() && DTypes::floating().has(*fact.dtype());
}

}  // namespace

bool functionalize(std::shared_ptr<Graph>& graph, const Facts& facts) {
  bool changed = RemoveTensorMutation(graph, [&](Node* node) {
    return is_on_scores(node, facts) || may_be_functional(node, facts);
  });
  if (RemoveListMutation(graph)) {
    changed = true;
    PeepholeOptimizeListIdioms(graph);  // lengths
    ConstantPropagationImmutableTypes(graph);
    PeepholeOptimizeListIdioms(graph);  // elements, by positions that are known now
    EliminateDeadCode(graph);
  }
  return changed;
}

}  // namespace jit_amp
