#include "analysis/has_scopes.h"

#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>

#include "analysis/hidden_calls.h"
#include "analysis/modules.h"
#include "core/graphs.h"
#include "core/private_members.h"

namespace jit_amp {

using namespace torch::jit;

// PyTorch keeps all classes and types of one process in a list that it shows to nobody.
struct Classes {
  using Member = std::vector<c10::NamedTypePtr> CompilationUnit::*;
  friend Member open(Classes);
};
template struct Opened<Classes, &CompilationUnit::classes_>;

bool HasScopes::operator()(GraphFunction& function) {
  const auto [known, is_new] = functions_.emplace(&function, false);
  if (is_new) {
    function.ensure_defined();
    functions_[&function] = look(*function.graph());
  }
  return functions_[&function];
}

bool HasScopes::behind(const c10::InterfaceType& interface) {
  const auto known = (*get_python_cu()).*open(Classes());
  return std::any_of(known.begin(), known.end(), [&](const c10::NamedTypePtr& type) {
    const auto cls = type->cast<c10::ClassType>();
    return cls && !cls->is_module() && cls->isSubtypeOf(interface) && methods(*cls);
  });
}

bool HasScopes::look(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* node) {
    if (node->kind() == prim::CallMethod) {
      if (const auto interface = node->input(0)->type()->cast<c10::InterfaceType>()) {
        return !interface->is_module() && behind(*interface);
      }
      const auto cls = node->input(0)->type()->cast<c10::ClassType>();
      if (!cls) {
        return true;  // malformed: lowering refuses it
      }
      if (!cls->compilation_unit()) {
        return false;  // its methods are gone: nothing can call it
      }
      auto* method = tryToGraphFunction(node);
      return method && (*this)(*method);
    }
    if (node->kind() == prim::CreateObject) {  // which may be called through an interface
      const auto cls = node->output()->type()->cast<c10::ClassType>();
      return !cls || is_autocast_class(cls) || methods(*cls);
    }
    if (GraphFunction* callee = hidden_callee(node)) {
      return (*this)(*callee);
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
