#include "passes/freeze/guard_autocast.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <set>
#include <string>

#include "analysis/guards.h"
#include "analysis/policy.h"
#include "core/devices.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether autocast around a call may change what the node computes. PyTorch's pass for graphs takes
// the lists of CUDA for the CPU, too.
bool is_concerned(const Node* node) {
  const auto devices = {c10::kCPU, c10::kCUDA, accelerator_here()};
  return std::any_of(devices.begin(), devices.end(), [&](c10::DeviceType device) {
    return policy_of(node, device) != Policy::untouched;
  });
}

using Devices = std::set<c10::DeviceType>;

// The devices of the tensors in a value; of an attribute's, those that autocast casts.
void collect_devices(const AbstractValue& value, bool only_floating, Devices& devices) {
  const Fact& fact = value.fact;
  if (value.kind == AbstractValue::tensor && fact.device &&
      (!only_floating || (fact.dims == Dims::some && fact.dtypes.within(DTypes::floating())))) {
    devices.insert(*fact.device);
  }
  for (const AbstractValue& part : value.parts) {
    collect_devices(part, only_floating, devices);
  }
}

Devices devices_of(Graph& graph, const AbstractValue& self,
                   const std::vector<AbstractValue>& inputs) {
  Devices devices;
  collect_devices(self, /*only_floating=*/true, devices);
  for (size_t i = 1; i < inputs.size(); ++i) {
    collect_devices(inputs[i], /*only_floating=*/false, devices);
  }
  for (const Node* node : all_nodes(graph, prim::Constant)) {
    for (const at::Tensor& tensor : tensors_in(node)) {
      if (tensor.is_floating_point() && tensor.dim() != 0) {
        devices.insert(tensor.device().type());
      }
    }
  }
  return devices;
}

bool has_accelerator(const Devices& devices) {
  return std::any_of(devices.begin(), devices.end(), [](c10::DeviceType device) {
    return device != c10::DeviceType::CPU && has_lists(device);
  });
}

// As the executor of a graph has a program for each of its states.
bool is_known_to_executor(c10::DeviceType device) {
  return device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA;
}

// Every device's autocast computes a product in float32. Not every one has bfloat16.
c10::ScalarType reduced_dtype(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ? c10::kBFloat16 : c10::kHalf;
}

// The message, an expression in TorchScript. `device` is what stands in a string literal there.
std::string message(const std::string& device) {
  return c10::str("\"jit_amp: autocast for ", device,
                  " is on around this call. A frozen module has its scopes in it, and this one "
                  "would cast again: call it outside autocast, or in `with torch.autocast('",
                  device, "', enabled=False):`\"");
}

void insert_check_of(c10::DeviceType device, Graph& graph) {
  const c10::ScalarType dtype = reduced_dtype(device);
  const std::string check = c10::str(
      "def check(x: Tensor):\n"
      "    shape = [0, 0]\n"
      "    if torch.prod(x.expand(shape, implicit=",
      is_known_to_executor(device) ? "True" : "False", "), 0).dtype != ", static_cast<int>(dtype),
      ":\n"
      "        shape.append(0)\n"
      "        assert len(shape) == 2, ",
      message(c10::DeviceTypeName(device, /*lower_case=*/true)), "\n");
  Value* nothing = graph.insertConstant(
      at::empty({0, 0}, at::TensorOptions().dtype(dtype).device(c10::Device(device))));
  insert_check(graph, check, "check", {nothing}, "check of the autocast around");
}

// Statements that check the tensors in `value`, an expression in TorchScript.
std::string check_in(const c10::TypePtr& type, const std::string& value, size_t depth) {
  const std::string indent(4 * depth, ' ');
  const std::string name = c10::str("v", depth);
  const auto below = [&](const std::string& head, const c10::TypePtr& part) {
    const std::string body = check_in(part, name, depth + 1);
    return body.empty() ? "" : indent + head + body;
  };
  if (is_tensor(type)) {
    const int dtype = static_cast<int>(c10::kHalf);
    return c10::str(indent, "if not ", value, ".is_cpu and ", value,
                    ".dtype != ", static_cast<int>(c10::ScalarType::Undefined), ":\n", indent,
                    "    nothing = torch.empty([0, 0], dtype=", dtype, ", device=", value,
                    ".device)\n", indent, "    assert torch.prod(nothing, 0).dtype == ", dtype,
                    ", ", message("\" + " + value + ".device.type + \""), "\n");
  }
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return below(c10::str(name, " = ", value, "\n", indent, "if ", name, " is not None:\n"),
                 optional->getElementType());
  }
  if (const auto list = type->cast<c10::ListType>()) {
    return below(c10::str("for ", name, " in ", value, ":\n"), list->getElementType());
  }
  if (const auto dict = type->cast<c10::DictType>()) {
    return below(c10::str("for ", name, " in ", value, ".values():\n"), dict->getValueType());
  }
  std::string text;
  if (const auto tuple = type->cast<c10::TupleType>()) {
    for (size_t i = 0; i < tuple->elements().size(); ++i) {
      text += check_in(tuple->elements()[i], c10::str(value, "[", i, "]"), depth);
    }
  }
  return text;
}

// Inputs of which nothing is known, if they may be on an accelerator.
void insert_checks_of_inputs(Graph& graph, const std::vector<AbstractValue>& inputs) {
  for (size_t i = 1; i < graph.inputs().size(); ++i) {
    Value* input = graph.inputs()[i];
    Devices known;
    if (i < inputs.size()) {
      collect_devices(inputs[i], /*only_floating=*/false, known);
    }
    const std::string type = annotation_of(input->type());
    if (known.empty() && input->hasUses() && !type.empty()) {
      const std::string body = check_in(input->type(), "x", 1);
      if (!body.empty()) {
        insert_check(graph, c10::str("def check(x: ", type, "):\n", body), "check", {input},
                     "check of the autocast around");
      }
    }
  }
}

// Where no autocast is around, none is on.
bool answer_queries(Graph& graph) {
  static const auto kCpu = c10::Symbol::aten("is_autocast_cpu_enabled");
  static const auto kCuda = c10::Symbol::aten("is_autocast_enabled");
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == kCpu || node->kind() == kCuda) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(node->owningGraph()->insertConstant(false));
      node->destroy();
      changed = true;
    }
  }
  return changed;
}

}  // namespace

bool guard_autocast(Graph& graph, const AbstractValue& self,
                    const std::vector<AbstractValue>& inputs) {
  const bool answered = answer_queries(graph);
  const auto nodes = all_nodes(graph);
  if (std::none_of(nodes.begin(), nodes.end(), is_concerned)) {
    return answered;
  }
  Devices devices = devices_of(graph, self, inputs);
  const WithInsertPoint begin(*graph.nodes().begin());
  if (!has_accelerator(devices)) {
    devices.insert(c10::DeviceType::CPU);
    insert_checks_of_inputs(graph, inputs);
  }
  for (const c10::DeviceType device : devices) {
    if (has_lists(device)) {
      insert_check_of(device, graph);
    }
  }
  return true;
}

}  // namespace jit_amp
