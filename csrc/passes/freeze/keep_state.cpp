#include "passes/freeze/keep_state.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <string>

#include "core/graphs.h"
#include "core/sharing.h"

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

}  // namespace

bool keep_state(const std::shared_ptr<Graph>& graph, Module self) {
  bool changed = false;
  for (Node* node : written_constants(graph)) {
    if (node->owningGraph() != graph.get()) {
      continue;
    }
    const auto value = toIValue(node->output());
    const c10::TypePtr type = value->isTensor() ? c10::TensorType::get() : node->output()->type();
    const WithInsertPoint start(*graph->nodes().begin());
    node->output()->replaceAllUsesWith(
        graph->insertGetAttr(graph->inputs()[0], attribute_for(*value, type, self)));
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
