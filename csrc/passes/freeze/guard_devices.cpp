#include "passes/freeze/guard_devices.h"

#include <ATen/ATen.h>

#include <set>
#include <string>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

void collect(const AbstractValue& value, std::set<c10::DeviceType>& devices) {
  if (value.kind == AbstractValue::tensor && value.fact.device) {
    devices.insert(*value.fact.device);
  }
  for (const AbstractValue& part : value.parts) {
    collect(part, devices);
  }
}

}  // namespace

bool guard_devices(Graph& graph, const AbstractValue& self) {
  std::set<c10::DeviceType> devices;
  collect(self, devices);
  for (const Node* node : all_nodes(graph, prim::Constant)) {
    if (const at::Tensor* tensor = tensor_in(node)) {
      devices.insert(tensor->device().type());
    }
  }
  devices.erase(c10::DeviceType::Meta);
  for (const c10::DeviceType device : devices) {
    const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
    const std::string check = c10::str(
        "def check(x: Tensor):\n    assert x.device.type == '", name,
        "', \"jit_amp: this module was frozen with weights on ", name, ", and they are on \" + ",
        "x.device.type + \". The device decides what autocast does: freeze it where it is to "
        "run\"\n");
    const WithInsertPoint begin(*graph.nodes().begin());
    Value* weight = graph.insertConstant(at::zeros({1}, c10::Device(device)));
    insert_check(graph, check, "check", {weight}, "check of the weights' device");
  }
  return !devices.empty();
}

}  // namespace jit_amp
