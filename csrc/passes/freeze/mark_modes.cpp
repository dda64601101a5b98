#include "passes/freeze/mark_modes.h"

#include <ATen/core/jit_type.h>
#include <c10/core/MemoryFormat.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/dialect.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

const c10::Symbol& mode_mark() {
  static const auto kMark = c10::Symbol::attr("jit_amp_mode");
  return kMark;
}

enum Mode : int64_t { records_nothing = 1, may_record = 2 };

// The mode inside a `with` of the object.
Mode mode_of(const Value* object) {
  const auto cls = object->type()->cast<c10::ClassType>();
  const std::string name = cls && cls->name() ? cls->name()->name() : "";
  if (name == "no_grad" || name == "inference_mode") {
    return records_nothing;
  }
  // jit_amp/_source/scope_template.py
  const auto& uses = object->uses();
  const bool is_off = std::any_of(uses.begin(), uses.end(), [](const Use& use) {
    const Node* set = use.user;
    const auto to = set->kind() == prim::SetAttr ? toIValue(set->input(1)) : std::nullopt;
    return to && to->isBool() && !to->toBool() && set->s(attr::name) == "mode";
  });
  return name == "set_grad" && is_off ? records_nothing : may_record;
}

bool mark(Block* block, std::vector<Mode>& open) {
  bool changed = false;
  for (Node* node : block->nodes()) {
    if (node->kind() == prim::Enter) {
      open.push_back(mode_of(node->input(0)));
    } else if (node->kind() == prim::Exit && !open.empty()) {
      open.pop_back();
    } else if (node->kind() == ops::cast && !open.empty()) {
      node->i_(mode_mark(), open.back());
      changed = true;
    }
    for (Block* inner : node->blocks()) {
      changed |= mark(inner, open);
    }
  }
  return changed;
}

}  // namespace

bool mark_modes(std::shared_ptr<Graph>& graph) {
  std::vector<Mode> open;
  return mark(graph->block(), open);
}

void set_apart(Node* to, const Node* cast) {
  if (!cast->hasAttribute(mode_mark()) || to->kind() != aten::to || to->inputs().size() != 5) {
    return;
  }
  const WithInsertPoint here(to);
  Graph* graph = to->owningGraph();
  if (cast->i(mode_mark()) == records_nothing) {
    const auto as_it_is = static_cast<int64_t>(c10::MemoryFormat::Preserve);
    to->replaceInput(4, graph->insertConstant(as_it_is));
  } else {
    to->replaceInput(2, graph->insertConstant(true));
  }
}

}  // namespace jit_amp
