#include "passes/export/keep_state.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <string>
#include <unordered_set>

#include "core/graphs.h"
#include "core/written.h"

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

// The constants that the graph writes to.
std::unordered_set<Value*> written(const std::shared_ptr<Graph>& graph) {
  constexpr size_t kMean = 3, kVariance = 4;
  std::unordered_set<Value*> found;
  for (Node* node : written_constants(graph)) {
    if (node->owningGraph() == graph.get()) {
      found.insert(node->output());
    }
  }
  for (Node* node : all_nodes(*graph)) {
    if (updates_statistics(node) && node->owningGraph() == graph.get()) {
      for (const size_t at : {kMean, kVariance}) {
        if (tensor_in(node->input(at)->node())) {
          found.insert(node->input(at));
        }
      }
    }
  }
  return found;
}

}  // namespace

bool keep_state(const std::shared_ptr<Graph>& graph, Module self) {
  const auto constants = written(graph);
  for (Node* node : all_nodes(*graph)) {  // in their order
    if (node->kind() != prim::Constant || !constants.count(node->output())) {
      continue;
    }
    const auto value = toIValue(node->output());
    const c10::TypePtr type = value->isTensor() ? c10::TensorType::get() : node->output()->type();
    const WithInsertPoint start(*graph->nodes().begin());
    node->output()->replaceAllUsesWith(
        graph->insertGetAttr(graph->inputs()[0], attribute_for(*value, type, self)));
  }
  return !constants.empty();
}

}  // namespace jit_amp
