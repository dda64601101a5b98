#include "passes/source/wrap.h"

#include <ATen/core/jit_type.h>

#include <map>

#include "analysis/modules.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "passes/source/widen.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The first of a kind, which is autocast's, or the last, which is the one for gradients.
Node* node_of(Graph& pattern, c10::Symbol kind, bool is_of_gradients) {
  Node* last = nullptr;
  for (Node* node : pattern.nodes()) {
    if (node->kind() == kind && (!last || is_of_gradients)) {
      last = node;
    }
  }
  TORCH_CHECK(last, "jit_amp: the scope pattern has no ", kind.toQualString());
  return last;
}

c10::IValue argument(const std::string& name, const Around& scope) {
  if (name == "device_type") {
    return scope.device_type;
  }
  if (name == "dtype") {
    return scope.dtype ? c10::IValue(*scope.dtype) : c10::IValue();
  }
  if (name == "enabled" || name == "mode") {
    return scope.enabled;
  }
  return scope.cache_enabled ? c10::IValue(*scope.cache_enabled) : c10::IValue();
}

}  // namespace

Value* enter_scope(Node* before, Graph& pattern, const Around& scope) {
  const bool is_of_gradients = scope.device_type == kGradients;
  const auto like = [&](c10::Symbol kind) { return node_of(pattern, kind, is_of_gradients); };
  Node* const create = like(prim::CreateObject);
  Graph& graph = *before->owningGraph();
  const WithInsertPoint here(before);
  Node* object = graph.insertNode(graph.createClone(create, [](Value* v) { return v; }));
  std::vector<Value*> arguments{object->output()};
  const auto& formals =
      create->output()->type()->expect<c10::ClassType>()->getMethod("__init__").getSchema();
  for (const auto& formal : formals.arguments()) {
    if (formal.name() != "self") {
      arguments.push_back(graph.insertConstant(argument(formal.name(), scope)));
    }
  }
  Node* made = graph.insertNode(graph.create(prim::CallMethod, arguments, 1));
  made->copyMetadata(like(prim::CallMethod));
  made->s_(attr::name, "__init__");
  made->output()->setType(c10::NoneType::get());
  Node* enter = graph.insertNode(
      graph.createClone(like(prim::Enter), [&](Value*) { return object->output(); }));
  if (scope.where) {
    for (Node* node : {object, made, enter}) {
      node->setSourceRange(*scope.where);
    }
  }
  return object->output();
}

void exit_scope(Node* before, Graph& pattern, Value* object) {
  const bool is_of_gradients = !is_autocast_class(object->type());
  before->owningGraph()
      ->createClone(node_of(pattern, prim::Exit, is_of_gradients), [&](Value*) { return object; })
      ->insertBefore(before);
}

void wrap(Graph& graph, Graph& pattern, const std::vector<Around>& scopes) {
  Node* const first = *graph.nodes().begin();
  std::vector<Value*> objects;  // null where results are cast
  bool widens = false;
  for (const Around& scope : scopes) {
    if (scope.device_type == kWidens) {
      widens = true;
    } else if (scope.device_type == kWidensResults) {
      objects.push_back(nullptr);
    } else {
      objects.push_back(enter_scope(first, pattern, scope));
    }
  }
  for (auto object = objects.rbegin(); object != objects.rend(); ++object) {
    if (*object) {
      exit_scope(graph.return_node(), pattern, *object);
    } else {
      widen_results(graph);
    }
  }
  if (widens) {
    widen_inputs(graph);
  }
}

void wrap_from_outside(const Module& module, const std::vector<std::string>& methods,
                       Graph& pattern, const std::vector<Around>& scopes) {
  const auto type = module.type();
  std::map<std::string, std::vector<Node*>> calls;  // from inside, by the method's name
  for (const GraphFunction* function : functions_of(module)) {
    for (Node* call : all_nodes(*function->graph(), prim::CallMethod)) {
      if (*call->input(0)->type() == *type) {
        calls[call->s(attr::name)].push_back(call);
      }
    }
  }
  for (const std::string& name : methods) {
    for (Node* call : calls[name]) {
      call->s_(attr::name, kInside + name);
    }
  }
  for (const std::string& name : methods) {
    auto& outside = toGraphFunction(type->getMethod(name));
    if (!calls[name].empty()) {
      const std::string inside = kInside + name;
      auto* copy = type->compilation_unit()->create_function(
          c10::QualifiedName(*type->name(), inside), outside.graph()->copy());
      copy->setSchema(outside.getSchema());
      type->addMethod(copy);
      if (const auto how = ignored(outside, module._ivalue())) {
        ignore(module._ivalue(), inside, how);
      }
    }
    wrap(*outside.graph(), pattern, scopes);
  }
}

}  // namespace jit_amp
