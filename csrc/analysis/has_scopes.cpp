#include "analysis/has_scopes.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

std::vector<GraphFunction*> functions_of(const c10::ClassType& type) {
  std::vector<GraphFunction*> functions;
  for (const auto& some : {type.methods(), type.getForwardPreHooks(), type.getForwardHooks()}) {
    for (Function* method : some) {
      if (auto* function = tryToGraphFunction(*method)) {
        functions.push_back(function);
      }
    }
  }
  return functions;
}

bool HasScopes::operator()(GraphFunction& function) {
  const auto [known, is_new] = functions_.emplace(&function, false);
  if (is_new) {
    function.ensure_defined();
    functions_[&function] = look(*function.graph());
  }
  return functions_[&function];
}

bool HasScopes::look(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* node) {
    if (node->kind() == prim::CallMethod) {
      auto* method = tryToGraphFunction(node);
      return method && (*this)(*method);
    }
    if (node->kind() == prim::CreateObject) {
      return is_autocast_class(node->output()->type());
    }
    if (node->kind() == prim::Enter) {
      return is_autocast_class(node->input()->type());
    }
    const auto type = node->kind() == prim::Constant
                          ? node->output()->type()->cast<c10::FunctionType>()
                          : nullptr;
    auto* callee = type ? tryToGraphFunction(*type->function()) : nullptr;
    return callee && (*this)(*callee);
  });
}

bool HasScopes::methods(const c10::ClassType& type) {
  const auto functions = functions_of(type);
  return std::any_of(functions.begin(), functions.end(),
                     [&](GraphFunction* function) { return (*this)(*function); });
}

bool HasScopes::operator()(const c10::ClassType& type) {
  if (const auto known = types_.find(&type); known != types_.end()) {
    return known->second;
  }
  bool result = methods(type);
  for (const auto& attribute : type.getAttributes()) {
    const auto below = attribute.getType()->cast<c10::ClassType>();
    result = result || (below && below->is_module() && (*this)(*below));
  }
  types_.emplace(&type, result);
  return result;
}

bool HasScopes::operator()(const Module& module) {
  bool result = false;
  for (const Module& each : module.modules()) {
    result = result || (*this)(*each.type());
  }
  return result;
}

}  // namespace jit_amp
