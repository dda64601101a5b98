#include "passes/freeze/guard_devices.h"

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "analysis/guards.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

constexpr size_t kSmall = 4096;  // bytes

// Per device the constant that a check looks at; null if one has to be made.
using Probes = std::map<c10::DeviceType, Node*>;

void collect_probes(const AbstractValue& value, Probes& probes) {
  const Fact& fact = value.fact;
  if (value.kind == AbstractValue::tensor && fact.device && fact.dims == Dims::some &&
      fact.dtypes.within(DTypes::floating())) {
    probes.emplace(*fact.device, nullptr);
  }
  for (const AbstractValue& part : value.parts) {
    collect_probes(part, probes);
  }
}

void collect_probes(Node* constant, const Block* at, Probes& probes) {
  const at::Tensor* tensor = tensor_in(constant);
  if (!tensor || !tensor->is_floating_point() || tensor->dim() == 0) {
    return;
  }
  Node*& probe = probes[tensor->device().type()];
  if (constant->owningBlock() == at && tensor->nbytes() <= kSmall &&
      (!probe || tensor->nbytes() < tensor_in(probe)->nbytes())) {
    probe = constant;
  }
}

}  // namespace

bool guard_devices(Graph& graph, const AbstractValue& self) {
  Probes probes;
  collect_probes(self, probes);
  for (Node* node : all_nodes(graph, prim::Constant)) {
    collect_probes(node, graph.block(), probes);
  }
  if (probes.size() > 1) {
    probes.erase(c10::DeviceType::CPU);
  }
  probes.erase(c10::DeviceType::Meta);
  for (const auto& [device, probe] : probes) {
    const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
    const std::string check = c10::str(
        "def check(x: Tensor):\n    assert ", is_on("x", device),
        ", \"jit_amp: this module was frozen with weights on ", name, ", and they are on \" + ",
        "x.device.type + \". The device decides which casts there are: freeze it where it is to "
        "run\"\n");
    if (probe && probe != *graph.nodes().begin()) {
      probe->moveBefore(*graph.nodes().begin());
    }
    const WithInsertPoint begin(probe ? probe->next() : *graph.nodes().begin());
    Value* weight =
        probe ? probe->output() : graph.insertConstant(at::zeros({1}, c10::Device(device)));
    insert_check(graph, check, "check", {weight}, "check of the weights' device");
  }
  return !probes.empty();
}

}  // namespace jit_amp
