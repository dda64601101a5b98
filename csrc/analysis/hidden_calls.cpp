#include "analysis/hidden_calls.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <unordered_set>

#include "analysis/policy.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

GraphFunction* method_of(const c10::TypePtr& type, const std::string& name) {
  const auto cls = type->cast<c10::ClassType>();
  Function* method = cls && !is_autocast_class(type) ? cls->findMethod(name) : nullptr;
  return method ? tryToGraphFunction(*method) : nullptr;
}

bool concerns(GraphFunction& function, c10::DeviceType accelerator,
              std::unordered_set<const Function*>& seen) {
  if (!seen.insert(&function).second) {
    return false;
  }
  function.ensure_defined();
  const auto nodes = all_nodes(*function.graph());
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* node) {
    GraphFunction* callee = hidden_callee(node);
    callee = callee ? callee : is_call(node) ? tryToGraphFunction(node) : nullptr;
    if (callee) {
      return concerns(*callee, accelerator, seen);
    }
    return is_call(node) || node->kind() == prim::Enter ||
           policy_of(node, c10::kCPU) != Policy::untouched ||
           policy_of(node, accelerator) != Policy::untouched;
  });
}

}  // namespace

GraphFunction* hidden_callee(const Node* node) {
  static const auto kSorted = Symbol::aten("sorted");
  if (node->kind() == prim::Enter || node->kind() == prim::Exit) {
    return method_of(node->input(0)->type(),
                     node->kind() == prim::Enter ? "__enter__" : "__exit__");
  }
  if (node->kind() != aten::sort && node->kind() != kSorted) {
    return nullptr;
  }
  const auto list = node->input(0)->type()->cast<c10::ListType>();
  return list ? method_of(list->getElementType(), "__lt__") : nullptr;
}

bool concerns_autocast(GraphFunction& function, c10::DeviceType accelerator) {
  std::unordered_set<const Function*> seen;
  return concerns(function, accelerator, seen);
}

}  // namespace jit_amp
