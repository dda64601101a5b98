#include "passes/quirks/optimizer/keep_dim.h"

#include <algorithm>

#include "analysis/traits.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Those that PyTorch's peephole answers `dim` of.
bool is_convolution(const Node* node) {
  return node->kind() == aten::conv1d || node->kind() == aten::conv2d ||
         node->kind() == aten::conv3d;
}

// Whether the result has the dimensions of the first operand, and the node may go, or be a cast
// that goes, so that the operand is asked.
bool may_go(const Node* node) {
  const Group group = traits_of(node).group;
  return node->kind() == ops::cast || group == Group::identity || group == Group::dropout;
}

// Whether the value may turn out to be any that was made before: an element of a list, or what a
// branch or a loop gives.
bool may_be_another(const Value* value) {
  const Node* node = value->node();
  return node->kind() == aten::__getitem__ || node->kind() == prim::ListUnpack ||
         node->kind() == prim::TupleUnpack || node->kind() == prim::TupleIndex ||
         node->kind() == prim::If || node->kind() == prim::Loop || node->kind() == ops::carried ||
         (node->kind() == prim::Param && node->owningBlock()->owningNode());
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
  for (Node* node : all_nodes(graph, aten::dim)) {
    if (only_refuses(node->output())) {
      continue;
    }
    Graph& owner = *node->owningGraph();
    Node* convolution = nullptr;
    Value* asked = node->input();
    while (is_convolution(asked->node()) || may_go(asked->node())) {
      convolution = is_convolution(asked->node()) ? asked->node() : convolution;
      asked = asked->node()->input(0);
    }
    if (!convolution && !may_be_another(asked)) {
      continue;
    }
    // Before the convolution: later its input may have other dimensions.
    const WithInsertPoint here(convolution ? convolution : node);
    Value* value = convolution ? convolution->input(0) : node->input();
    const auto ask = [&](c10::Symbol what, Value* of) {
      return owner.insert(what, {of}, {}, node->sourceRange());
    };
    node->output()->replaceAllUsesWith(
        may_be_another(asked) ? ask(aten::len, ask(aten::size, value)) : ask(aten::dim, value));
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
