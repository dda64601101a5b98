#include "passes/decompose.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <string>
#include <unordered_map>

#include "passes/definitions.h"
#include "passes/loops.h"
#include "passes/lower.h"
#include "passes/policy.h"
#include "passes/scopes.h"
#include "passes/specialize.h"
#include "passes/subgraphs.h"
#include "runtime/ops.h"
#include "runtime/state.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The forks, by the graphs of their tasks.
using Forks = std::unordered_map<const Graph*, const Node*>;

// A value of a task's graph as the one outside that it was given.
const Value* outside_of_tasks(const Value* value, const Forks& forks) {
  for (auto task = forks.find(value->owningGraph());
       task != forks.end() && value->node()->kind() == prim::Param;
       task = forks.find(value->owningGraph())) {
    value = task->second->input(value->offset());
  }
  return value;
}

// The state that a `jit_amp::scoped` node sets, if it is known when compiling.
std::optional<State> state_of(const Node* scoped, const Forks& forks) {
  State state;
  const auto& devices = scoped->ss(ops::devices);
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto enabled = constant_as<bool>(scoped->input(2 * i));
    const Node* dtype = outside_of_tasks(scoped->input(2 * i + 1), forks)->node();
    if (!enabled || dtype->kind() != ops::deferred) {
      return std::nullopt;
    }
    state.devices[c10::Device(devices[i]).type()] = {
        *enabled, static_cast<c10::ScalarType>(dtype->i(attr::value))};
  }
  return state;
}

bool is_for_cpu_alone(const State& state) {
  return std::all_of(state.devices.begin(), state.devices.end(), [](const auto& device) {
    return device.second.enabled == (device.first == at::kCPU);
  });
}

// The definitions know of no other devices.
bool is_for_cpu_and_cuda(const State& state) {
  return std::all_of(state.devices.begin(), state.devices.end(), [](const auto& device) {
    return device.first == at::kCPU || device.first == at::kCUDA || !device.second.enabled;
  });
}

// The sources of definitions, and where each holds. The first that does and has the operator is it.
struct Source {
  const char* text;
  bool (*holds)(const c10::FunctionSchema& op, const State& state);
};

bool on_any_device(const c10::FunctionSchema&, const State&) { return true; }
bool on_cpu_alone(const c10::FunctionSchema&, const State& state) {
  return is_for_cpu_alone(state);
}
// What CUDA's autocast alone does to an operator.
bool on_cuda(const c10::FunctionSchema& op, const State& state) {
  return !state.active(at::kCPU) || policy_of(op, at::kCPU) == Policy::untouched;
}

constexpr Source kSources[]{
    {kLossComposites, on_any_device},
    {kMathComposites, on_any_device},
    {kMathCompositesOnCpu, on_cpu_alone},
    {kMathCompositesOnCuda, on_cuda},
    {kNormComposites, on_cuda},
    {kPaddingComposites, on_any_device},
    {kProductCompositesOnCpu, on_cpu_alone},
    {kRecurrentCompositesOnCpu, on_cpu_alone},
    {kTransformerCompositesOnCpu, on_cpu_alone},
};

// The name that an operator's definition has: definitions.h.
std::string name_of_definition(const c10::FunctionSchema& schema) {
  const std::string name = c10::Symbol::fromQualString(schema.name()).toUnqualString();
  return schema.overload_name().empty() ? name : name + "__" + schema.overload_name();
}

bool onednn_takes(c10::ScalarType dtype) {
  const char* name = dtype == c10::kBFloat16 ? "mkldnn::_is_mkldnn_bf16_supported"
                                             : "mkldnn::_is_mkldnn_fp16_supported";
  const auto asked = c10::Dispatcher::singleton().findSchema({name, ""});
  return asked && asked->typed<bool()>().call();
}

// Whether eager's result of float32 operands in a bfloat16 scope is bfloat16: for what differs from
// one release to the next. Where the machine has no such operator, it is the release that tries.
template <typename F>
bool is_lowered(F&& result) {
  const c10::InferenceMode no_gradients;
  const Entered scope({{at::kCPU, true, c10::kBFloat16}}, std::nullopt);
  try {
    return result().scalar_type() == c10::kBFloat16;
  } catch (const std::exception&) {
    return true;
  }
}

at::Tensor ones(at::IntArrayRef sizes, c10::ScalarType dtype = c10::kFloat) {
  return at::ones(sizes, c10::TensorOptions(dtype).device(c10::kCPU));
}

// An LSTM on packed sequences that are all of one length: oneDNN's from PyTorch 2.13 on.
bool onednn_unpacks() {
  return is_lowered([] {
    return std::get<0>(at::lstm(ones({1, 1}), ones({1}, c10::kLong),
                                {ones({1, 1, 1}), ones({1, 1, 1})}, {ones({4, 1}), ones({4, 1})},
                                /*has_biases=*/false,
                                /*num_layers=*/1, /*dropout=*/0.0, /*train=*/false,
                                /*bidirectional=*/false));
  });
}

// A tensordot to one number: not by `mm` in later releases.
bool tensordot_is_mm() {
  return is_lowered([] { return at::tensordot(ones({2}), ones({2}), {0}, {0}); });
}

// Functions that all definitions have: what the state and this machine say. And `lowered`, for
// which `specialize` puts a cast.
std::string preamble(const State& state) {
  const auto function = [](const char* name, bool value) {
    return c10::str("def ", name, "() -> bool:\n    return ", value ? "True" : "False", "\n\n");
  };
  const DeviceState cpu = state.at(at::kCPU);
  const bool has_onednn = at::globalContext().userEnabledMkldnn() && at::hasMKLDNN();
  static const bool unpacks = onednn_unpacks();
  static const bool always_mm = tensordot_is_mm();
  return "def lowered(x: Tensor) -> Tensor:\n    return x\n\n" +
         function("has_onednn", has_onednn) + function("onednn_unpacks", has_onednn && unpacks) +
         function("tensordot_is_mm", always_mm) +
         function("onednn_takes_lower", has_onednn && cpu.dtype && onednn_takes(*cpu.dtype));
}

// The dtype that the policy `lower` casts to on the device, as a value at the insertion point.
Value* lower_dtype(Graph& graph, const State& state, c10::DeviceType device) {
  if (!state.active(device)) {
    return graph.insertConstant(c10::IValue());
  }
  Node* dtype = graph.insertNode(graph.create(ops::deferred, 1));
  dtype->i_(attr::value, static_cast<int64_t>(*state.at(device).dtype));
  return dtype->output()->setType(c10::IntType::get());
}

Value* lowered(Value* value, const State& state) {
  Graph& graph = *value->owningGraph();
  return graph
      .insertNode(graph.create(ops::cast, {value, lower_dtype(graph, state, at::kCPU),
                                           lower_dtype(graph, state, at::kCUDA)}))
      ->output()
      ->setType(c10::TensorType::get());
}

// Puts the definition, lowered, in the node's place. Where it has the operator itself, that stands
// free of the scope; so does what is marked.
void define(Node* node, const State& state, const std::string& source, const std::string& name,
            const Lists& fixed) {
  auto body = source_graph(source, name);
  const auto operands =
      specialize(body, node, fixed, [&](Value* value) { return lowered(value, state); });
  mark_loops(*body);
  Scopes scopes = find_scopes(*body, state);
  for (Node* inner : all_nodes(*body)) {
    const bool is_marked = inner->hasAttribute(kOutside);
    if (is_marked) {
      inner->removeAttribute(kOutside);
    }
    const auto* schema = inner->maybeSchema();
    if (is_marked || (schema && schema->operator_name() == node->schema().operator_name())) {
      scopes.state.erase(inner);
    }
  }
  lower(body, scopes, state, Product::exported);
  unmark_loops(*body);
  node->removeAllInputs();
  for (Value* operand : operands) {
    node->addInput(operand);
  }
  replace_by(node, source, name, *body);
}

// Returns whether the node had a definition, which now stands in its place.
bool decompose(Node* scoped, const Lists& fixed, const Forks& forks) {
  const auto state = state_of(scoped, forks);
  const Node* wrapped = wrapped_node(scoped);
  const c10::FunctionSchema* schema = wrapped->maybeSchema();
  if (!state || !is_for_cpu_and_cuda(*state) || !schema || !wrapped->kind().is_aten()) {
    return false;
  }
  const std::string name = name_of_definition(*schema);
  const std::string known = preamble(*state);
  for (const Source& source : kSources) {
    const std::string text = known + source.text;
    if (has_definition(text, name) && source.holds(*schema, *state)) {
      define(unwrap(scoped), *state, text, name, fixed);
      return true;
    }
  }
  return false;
}

}  // namespace

void decompose(const std::shared_ptr<torch::jit::Graph>& graph) {
  // Once more after each change: a definition may be in terms of composites.
  for (bool changed = true; changed;) {
    changed = false;
    const auto nodes = all_nodes(*graph);
    if (std::none_of(nodes.begin(), nodes.end(), ops::is_scoped)) {
      return;
    }
    const auto fixed = fixed_lists(graph);
    Forks forks;
    for (const Node* node : nodes) {
      if (node->kind() == prim::fork) {
        forks.emplace(node->g(attr::Subgraph).get(), node);
      }
    }
    for (Node* node : nodes) {
      changed |= ops::is_scoped(node) && decompose(node, fixed, forks);
    }
  }
}

bool is_decomposed(const c10::FunctionSchema& op, c10::DeviceType device) {
  State state;
  state.devices[device] = {true, c10::kBFloat16};
  return std::any_of(std::begin(kSources), std::end(kSources), [&](const Source& source) {
    return has_definition(preamble(state) + source.text, name_of_definition(op)) &&
           source.holds(op, state);
  });
}

}  // namespace jit_amp
