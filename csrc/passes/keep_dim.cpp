#include "passes/keep_dim.h"

#include <algorithm>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_convolution(const Value* value) {
  const auto kind = value->node()->kind();
  return kind == aten::conv1d || kind == aten::conv2d || kind == aten::conv3d;
}

bool always_raises(const Block* block) {
  return std::any_of(block->nodes().begin(), block->nodes().end(),
                     [](const Node* node) { return node->kind() == prim::RaiseException; });
}

bool does_nothing(const Block* block) { return block->nodes().begin() == block->nodes().end(); }

// Whether all that comes of the value is an error, its message, or neither.
bool only_refuses(const Value* value) {
  return std::all_of(value->uses().begin(), value->uses().end(), [](const Use& use) {
    const Node* user = use.user;
    if (user->kind() == prim::Return) {
      const Node* owner = user->owningBlock()->owningNode();
      return owner && owner->kind() == prim::If && only_refuses(owner->outputs()[use.offset]);
    }
    if (user->kind() == prim::If && user->outputs().empty()) {
      const Block *yes = user->blocks()[0], *no = user->blocks()[1];
      return (always_raises(yes) && does_nothing(no)) || (does_nothing(yes) && always_raises(no));
    }
    return user->kind() == prim::RaiseException ||
           (!may_write(user) && !user->outputs().empty() &&
            std::all_of(user->outputs().begin(), user->outputs().end(), [](const Value* output) {
              return is_plain(output->type()) && only_refuses(output);
            }));
  });
}

}  // namespace

bool keep_dim(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::dim || only_refuses(node->output())) {
      continue;
    }
    while (is_convolution(node->input())) {
      node->replaceInput(0, node->input()->node()->input(0));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
