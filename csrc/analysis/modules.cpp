#include "analysis/modules.h"

#include <unordered_set>

#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;
using c10::TypeKind;

std::vector<GraphFunction*> functions_of(const c10::ClassType& type) {
  std::vector<GraphFunction*> functions;
  // It knows its methods by their addresses only, and what was loaded from a file takes them along
  // when it goes, while a class of PyTorch's compiler that had one as a submodule stays for ever.
  if (!type.compilation_unit()) {
    return functions;
  }
  for (const auto& some : {type.methods(), type.getForwardPreHooks(), type.getForwardHooks()}) {
    for (Function* method : some) {
      if (auto* function = tryToGraphFunction(*method)) {
        functions.push_back(function);
      }
    }
  }
  return functions;
}

std::vector<c10::ClassTypePtr> types_of(const Module& module) {
  std::vector<c10::ClassTypePtr> types;
  std::unordered_set<const c10::ClassType*> seen;
  for (const Module& each : module.modules()) {
    if (seen.insert(each.type().get()).second) {
      types.push_back(each.type());
    }
  }
  return types;
}

std::vector<GraphFunction*> functions_of(const Module& module) {
  std::vector<GraphFunction*> functions;
  for (const auto& type : types_of(module)) {
    const auto some = functions_of(*type);
    functions.insert(functions.end(), some.begin(), some.end());
  }
  return functions;
}

Assigned assigned_attributes(const torch::jit::ObjectPtr& self) {
  const Module module(self);
  std::vector<GraphFunction*> functions;
  for (Function* method : self->type()->methods()) {
    if (auto* function = tryToGraphFunction(*method)) {
      functions.push_back(function);
    }
  }
  for (const Module& child : module.children()) {
    const auto some = functions_of(child);
    functions.insert(functions.end(), some.begin(), some.end());
  }
  Assigned assigned;
  for (const GraphFunction* function : functions) {
    for (const Node* node : all_nodes(*function->graph(), prim::SetAttr)) {
      assigned.emplace(node->input(0)->type().get(), node->s(attr::name));
    }
  }
  return assigned;
}

Module submodule(const Module& module, const std::string& path) {
  Module at = module;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    at = at.attr(name).toModule();
  }
  return at;
}

Modules::Modules(ObjectPtr self, Graph& graph) : given_{std::move(self)} {
  for (Node* fork : all_nodes(graph, prim::fork)) {
    enter(fork);
  }
}

void Modules::enter(Node* fork) { forks_.emplace(fork->g(attr::Subgraph).get(), fork); }

Value* Modules::outside(const Value* value) const {
  const auto fork = forks_.find(value->owningGraph());
  const bool of_the_graph = value->node() == value->owningGraph()->param_node();
  return fork == forks_.end() || !of_the_graph ? nullptr : fork->second->input(value->offset());
}

std::pair<ObjectPtr, std::string> Modules::find(const Value* value) const {
  if (!value->type()->is_module() || value->type()->kind() != TypeKind::ClassType) {
    return {nullptr, ""};
  }
  if (const Value* outer = outside(value)) {
    return find(outer);
  }
  if (value->node() == value->owningGraph()->param_node()) {
    const bool is_given = value->offset() < given_.size() && !forks_.count(value->owningGraph());
    return {is_given ? given_[value->offset()] : nullptr, ""};
  }
  if (value->node()->kind() != prim::GetAttr) {
    return {nullptr, ""};
  }
  const auto& name = value->node()->s(attr::name);
  const auto [owner, path] = find(value->node()->input());
  return {owner ? owner->getAttr(name).toObject() : nullptr, path + name + "."};
}

}  // namespace jit_amp
