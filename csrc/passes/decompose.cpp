#include "passes/decompose.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "passes/definitions.h"
#include "passes/loops.h"
#include "passes/lower.h"
#include "passes/policy.h"
#include "passes/scopes.h"
#include "passes/specialize.h"
#include "passes/subgraphs.h"
#include "runtime/ops.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The state that a `jit_amp::scoped` node sets, if it is known when compiling.
std::optional<State> state_of(const Node* scoped) {
  State state;
  const auto& devices = scoped->ss(ops::devices);
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto enabled = constant_as<bool>(scoped->input(2 * i));
    const Node* dtype = scoped->input(2 * i + 1)->node();
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
    {kNormComposites, on_cuda},
    {kPaddingComposites, on_any_device},
    {kEinsum, on_any_device},
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

// Whether an LSTM on sequences that are all of one length, packed, is oneDNN's: PyTorch 2.13 has it
// so, earlier releases not. The native one takes a state of another dtype and widens it.
bool onednn_unpacks() {
  const c10::InferenceMode no_gradients;
  const auto one = at::ones({1, 1});
  const auto state = at::ones({1, 1, 1});
  const auto weight = at::ones({4, 1});
  try {
    const auto results = at::lstm(one, at::ones({1}, c10::kLong), {state, state.to(c10::kBFloat16)},
                                  {weight, weight},
                                  /*has_biases=*/false, /*num_layers=*/1, /*dropout=*/0.0,
                                  /*train=*/false, /*bidirectional=*/false);
    return std::get<2>(results).scalar_type() != c10::kFloat;
  } catch (const std::exception&) {
    return true;
  }
}

// Functions that all definitions have: what the state and this machine say. And `lowered`, for
// which `specialize` puts a cast.
std::string preamble(const State& state) {
  const auto function = [](const char* name, bool value) {
    return c10::str("def ", name, "() -> bool:\n    return ", value ? "True" : "False", "\n\n");
  };
  const DeviceState cpu = state.at(at::kCPU);
  const bool has_onednn = at::globalContext().userEnabledMkldnn() && at::hasMKLDNN();
  return "def lowered(x: Tensor) -> Tensor:\n    return x\n\n" +
         function("for_cpu_alone", is_for_cpu_alone(state)) + function("has_onednn", has_onednn) +
         function("onednn_unpacks", has_onednn && onednn_unpacks()) +
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
// free of the scope.
void define(Node* node, const State& state, const std::string& source, const std::string& name,
            const std::set<size_t>& fixed) {
  auto body = source_graph(source, name);
  const auto operands =
      specialize(body, node, fixed, [&](Value* value) { return lowered(value, state); });
  mark_loops(*body);
  Scopes scopes = find_scopes(*body, state);
  for (const Node* inner : all_nodes(*body)) {
    if (inner->kind() == node->kind()) {
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

void decompose(Node* scoped, const std::set<size_t>& fixed) {
  const auto state = state_of(scoped);
  const Node* wrapped = wrapped_node(scoped);
  const c10::FunctionSchema* schema = wrapped->maybeSchema();
  if (!state || !schema || !wrapped->kind().is_aten()) {
    return;
  }
  const std::string name = name_of_definition(*schema);
  for (const Source& source : kSources) {
    const std::string text = preamble(*state) + source.text;
    if (has_definition(text, name) && source.holds(*schema, *state)) {
      define(unwrap(scoped), *state, text, name, fixed);
      return;
    }
  }
}

}  // namespace

void decompose(const std::shared_ptr<torch::jit::Graph>& graph) {
  const auto nodes = all_nodes(*graph);
  if (std::none_of(nodes.begin(), nodes.end(), ops::is_scoped)) {
    return;
  }
  const auto fixed = fixed_lists(graph);
  for (Node* node : nodes) {
    if (ops::is_scoped(node)) {
      decompose(node, fixed);
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
