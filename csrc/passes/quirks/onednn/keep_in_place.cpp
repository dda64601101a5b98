#include "passes/quirks/onednn/keep_in_place.h"

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool have_one_dtype(const Fact& one, const Fact& other) {
  return one.dtype() && one.dtype() == other.dtype();
}

// Those who used what was written to use the result, which is the same tensor: an exporter that
// knows no writes follows results.
void use_result(Value* written, Node* node) {
  const auto uses = written->uses();  // a copy: they go while they are replaced
  for (const Use& use : uses) {
    if (use.user != node && use.user->isDominatedBy(node)) {
      use.user->replaceInput(use.offset, node->output());
    }
  }
}

}  // namespace

bool keep_in_place(Graph& graph, const Facts& facts) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::add_ && node->kind() != aten::mul_ && node->kind() != aten::pow_) {
      continue;
    }
    Value *written = node->input(0), *other = node->input(1);
    if (is_tensor(written->type()) && is_tensor(other->type()) &&
        written->node()->kind() != aten::alias &&
        written->node()->kind() != prim::BroadcastMKLDNNTensors &&
        !have_one_dtype(facts.of(written), facts.of(other))) {
      use_result(written, node);
      const WithInsertPoint here(node);
      node->replaceInput(0, node->owningGraph()->insert(aten::alias, {written}));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
