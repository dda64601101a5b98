#include "passes/export/keep_state.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/copies.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

std::string free_name(const Module& self) {
  std::string name;
  for (size_t number = 0; name.empty() || self.hasattr(name) || self.find_method(name); ++number) {
    name = "_state" + std::to_string(number);
  }
  return name;
}

// The name of the attribute that is this very value, which is made if there is none.
std::string attribute_for(const c10::IValue& value, const c10::TypePtr& type, Module& self) {
  for (const auto& each : self.named_attributes(/*recurse=*/false)) {
    if (each.value.is(value) && each.value.type()->isSubtypeOf(*type)) {
      return each.name;
    }
  }
  const std::string name = free_name(self);
  if (value.isTensor()) {
    self.register_buffer(name, value.toTensor());
  } else {
    self.register_attribute(name, type, value);
  }
  return name;
}

// Puts in front of the graph what has the values of its constants, the tensors in which are state.
class Kept {
 public:
  Kept(Graph& graph, Module self) : graph_(graph), self_(std::move(self)) {}

  // Of what is not changed itself the tensors alone are kept, each of them once: PyTorch freezes
  // no module whose attributes share one.
  Value* of(const c10::IValue& value, const c10::TypePtr& type, bool is_changed) {
    if (!is_changed && value.isTuple()) {
      return graph_.insertNode(graph_.createTuple(elements(value.toTupleRef().elements())))
          ->output();
    }
    if (!is_changed && value.isList()) {
      return graph_
          .insertNode(graph_.createList(type->expectRef<c10::ListType>().getElementType(),
                                        elements(value.toListRef())))
          ->output();
    }
    if (!is_changed && value.isGenericDict()) {
      const auto& dict = type->expectRef<c10::DictType>();
      std::vector<Value*> keys, values;
      for (const auto& each : value.toGenericDict()) {
        keys.push_back(of(each.key(), dict.getKeyType(), false));
        values.push_back(of(each.value(), dict.getValueType(), false));
      }
      return graph_
          .insertNode(graph_.createDict(dict.getKeyType(), dict.getValueType(), keys, values))
          ->output();
    }
    if (value.isTensor() || value.isObject() || is_changed) {
      return graph_.insertGetAttr(graph_.inputs()[0], attribute_for(value, type, self_));
    }
    return graph_.insertConstant(value);
  }

 private:
  template <class Values>
  std::vector<Value*> elements(const Values& values) {
    std::vector<Value*> found;
    for (const c10::IValue& each : values) {
      found.push_back(of(each, each.type(), false));
    }
    return found;
  }

  Graph& graph_;
  Module self_;
};

// The constants that the graph writes to, and whether they are changed themselves.
std::unordered_map<Value*, bool> written(const std::shared_ptr<Graph>& graph) {
  constexpr size_t kMean = 3, kVariance = 4;
  std::unordered_map<Value*, bool> found;
  for (const auto& [node, is_changed] : written_constants(graph)) {
    if (node->owningGraph() == graph.get()) {
      found.emplace(node->output(), is_changed);
    }
  }
  for (Node* node : all_nodes(*graph)) {
    if (updates_statistics(node) && node->owningGraph() == graph.get()) {
      for (const size_t at : {kMean, kVariance}) {
        if (tensor_in(node->input(at)->node())) {
          found.emplace(node->input(at), true);
        }
      }
    }
  }
  return found;
}

}  // namespace

bool keep_state(const std::shared_ptr<Graph>& graph, Module self) {
  const auto constants = written(graph);
  Kept kept(*graph, std::move(self));
  const WithInsertPoint start(*graph->nodes().begin());
  for (Node* node : all_nodes(*graph)) {  // in their order
    if (node->kind() != prim::Constant || !constants.count(node->output())) {
      continue;
    }
    Value* constant = node->output();
    const auto value = toIValue(constant);
    const c10::TypePtr type = value->isTensor() ? c10::TensorType::get() : constant->type();
    constant->replaceAllUsesWith(kept.of(*value, type, constants.at(constant)));
  }
  return !constants.empty();
}

}  // namespace jit_amp
