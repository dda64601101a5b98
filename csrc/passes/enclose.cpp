#include "passes/enclose.h"

#include <ATen/core/jit_type.h>

#include "passes/flatten.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

Node* find(Graph& pattern, c10::Symbol kind) {
  for (Node* node : pattern.nodes()) {
    if (node->kind() == kind) {
      return node;
    }
  }
  TORCH_CHECK(false, "jit_amp: the scope pattern has no ", kind.toQualString());
}

c10::IValue argument(const std::string& name, const Around& scope) {
  if (name == "device_type") {
    return scope.device_type;
  }
  if (name == "dtype") {
    return scope.dtype ? c10::IValue(*scope.dtype) : c10::IValue();
  }
  return name == "enabled" ? c10::IValue(scope.enabled) : c10::IValue();
}

}  // namespace

void enclose(Graph& graph, Graph& pattern, const std::vector<Around>& scopes) {
  Node* const create = find(pattern, prim::CreateObject);
  Node* const init = find(pattern, prim::CallMethod);
  Node* const enter = find(pattern, prim::Enter);
  Node* const exit = find(pattern, prim::Exit);
  const auto& formals =
      create->output()->type()->expect<c10::ClassType>()->getMethod("__init__").getSchema();
  Node* const first = *graph.nodes().begin();

  std::vector<Value*> objects;
  for (const Around& scope : scopes) {
    const WithInsertPoint here(first);
    const auto clone = [&](Node* node, Value* object) {
      return graph.insertNode(graph.createClone(node, [&](Value*) { return object; }));
    };
    Node* object = graph.insertNode(graph.createClone(create, [](Value* v) { return v; }));
    objects.push_back(object->output());
    std::vector<Value*> arguments{object->output()};
    for (const auto& formal : formals.arguments()) {
      if (formal.name() != "self") {
        arguments.push_back(graph.insertConstant(argument(formal.name(), scope)));
      }
    }
    Node* made = graph.insertNode(graph.create(prim::CallMethod, arguments, 1));
    made->copyMetadata(init);
    made->s_(attr::name, "__init__");
    made->output()->setType(c10::NoneType::get());
    clone(enter, object->output());
  }
  for (auto object = objects.rbegin(); object != objects.rend(); ++object) {
    graph.appendNode(graph.createClone(exit, [&](Value*) { return *object; }));
  }
}

}  // namespace jit_amp
