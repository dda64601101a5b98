#include "passes/decompose.h"

#include <ATen/Context.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>

#include "passes/definitions.h"
#include "passes/lower.h"
#include "passes/policy.h"
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

// Casts every tensor operand of `node`, as the lower policy does.
void lower_operands(Node* node, const State& state) {
  Graph* graph = node->owningGraph();
  const WithInsertPoint here(node);
  Value* dtype = graph->insertNode(graph->create(ops::deferred, 1))->output();
  dtype->node()->i_(attr::value, static_cast<int64_t>(*state.at(at::kCPU).dtype));
  dtype->setType(c10::IntType::get());
  Value* none = graph->insertConstant(c10::IValue());
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    for (const c10::TypePtr& type :
         {c10::TypePtr(c10::TensorType::get()), c10::TypePtr(c10::ListType::ofTensors())}) {
      if (node->input(i)->type()->isSubtypeOf(*type)) {
        Node* cast = graph->insertNode(graph->create(ops::cast, {node->input(i), dtype, none}, 1));
        cast->copyMetadata(node);
        cast->output()->setType(type);
        node->replaceInput(i, cast->output());
        break;
      }
    }
  }
}

// A wrapped node's operand, as the value outside.
Value* operand(Node* scoped, const std::string& name) {
  Value* inside = wrapped_node(scoped)->namedInput(name);
  const auto& inputs = scoped->g(attr::Subgraph)->inputs();
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i] == inside) {
      return scoped->input(state_inputs(scoped) + i);
    }
  }
  return inside;
}

std::optional<size_t> length(const Value* list) {
  if (list->node()->kind() == prim::ListConstruct) {
    return list->node()->inputs().size();
  }
  const auto constant = toIValue(list);
  return constant && constant->isList() ? std::optional(constant->toListRef().size())
                                        : std::nullopt;
}

// oneDNN's LSTM is what eager runs on CPU, except with projections, which have more weights.
bool is_onednn_lstm(Node* scoped) {
  const Node* node = wrapped_node(scoped);
  if (node->kind() != aten::lstm || node->schema().overload_name() != "input" ||
      !at::globalContext().userEnabledMkldnn() || !at::hasMKLDNN()) {
    return false;
  }
  const auto biases = constant_as<bool>(operand(scoped, "has_biases"));
  const auto layers = constant_as<int64_t>(operand(scoped, "num_layers"));
  const auto both_ways = constant_as<bool>(operand(scoped, "bidirectional"));
  const auto weights = length(operand(scoped, "params"));
  return biases && layers && both_ways && weights &&
         *weights == static_cast<size_t>(*layers) * (*both_ways ? 2 : 1) * (*biases ? 4 : 2);
}

// An einsum as CPU runs it.
struct Einsum {
  enum Kind { unknown, no_product, product } kind = unknown;
  std::vector<int64_t> contracted;  // dimensions of the first operand that the product sums over
};

// One operand is viewed and summed; two are multiplied, or contracted by one bmm. A letter that is
// summed in one operand alone is summed before the bmm, in that operand's dtype: not known here.
Einsum read_einsum(const Node* node) {
  const auto given = constant_as<std::string>(node->namedInput("equation"));
  if (!given || given->find('.') != std::string::npos) {
    return {};
  }
  std::string equation;
  std::copy_if(given->begin(), given->end(), std::back_inserter(equation),
               [](char c) { return c != ' '; });
  const size_t arrow = equation.find("->");
  const std::string inputs = equation.substr(0, arrow);
  const size_t comma = inputs.find(',');
  if (comma == std::string::npos) {
    return {Einsum::no_product, {}};
  }
  const std::string left = inputs.substr(0, comma);
  const std::string right = inputs.substr(comma + 1);
  if (right.find(',') != std::string::npos) {
    return {};
  }
  const auto kept = [&](char letter) {
    if (arrow != std::string::npos) {
      return equation.find(letter, arrow) != std::string::npos;
    }
    return std::count(inputs.begin(), inputs.end(), letter) == 1;
  };
  for (const std::string* operand : {&left, &right}) {
    const std::string& other = operand == &left ? right : left;
    for (const char letter : *operand) {
      if (std::count(operand->begin(), operand->end(), letter) > 1 ||
          (other.find(letter) == std::string::npos && !kept(letter))) {
        return {};
      }
    }
  }
  Einsum read{Einsum::no_product, {}};
  for (size_t i = 0; i < left.size(); ++i) {
    if (right.find(left[i]) != std::string::npos && !kept(left[i])) {
      read.kind = Einsum::product;
      read.contracted.push_back(static_cast<int64_t>(i));
    }
  }
  return read;
}

// With a summed dimension of size 1 eager multiplies where it else calls bmm.
void check_contracted(Node* einsum, const std::vector<int64_t>& dimensions) {
  const Node* list = einsum->namedInput("tensors")->node();
  if (list->kind() != prim::ListConstruct) {
    return;
  }
  Graph* graph = einsum->owningGraph();
  const WithInsertPoint here(einsum);
  for (const int64_t dimension : dimensions) {
    insert_check(*graph, kProductComposites, "check_contracted",
                 {list->input(0), graph->insertConstant(dimension)});
  }
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
    {kRecurrentCompositesOnCpu, on_cpu_alone},
    {kTransformerCompositesOnCpu, on_cpu_alone},
};

// The name that an operator's definition has: definitions.h.
std::string name_of_definition(const c10::FunctionSchema& schema) {
  const std::string name = c10::Symbol::fromQualString(schema.name()).toUnqualString();
  return schema.overload_name().empty() ? name : name + "__" + schema.overload_name();
}

void decompose(Node* scoped) {
  const auto known = state_of(scoped);
  if (!known) {
    return;
  }
  const State& state = *known;
  if (is_for_cpu_alone(state) && is_onednn_lstm(scoped)) {
    Node* node = unwrap(scoped);
    const WithInsertPoint here(node);
    const auto dtype = static_cast<int64_t>(*state.at(at::kCPU).dtype);
    Graph* graph = node->owningGraph();
    insert_check(*graph, kRecurrentCompositesOnCpu, "check_onednn",
                 {node->namedInput("input"), graph->insertConstant(dtype)});
    lower_operands(node, state);
    return;
  }
  if (is_for_cpu_alone(state) && wrapped_node(scoped)->kind() == aten::einsum) {
    const Einsum einsum = read_einsum(wrapped_node(scoped));
    if (einsum.kind != Einsum::unknown) {
      Node* node = unwrap(scoped);
      if (einsum.kind == Einsum::product) {
        check_contracted(node, einsum.contracted);
        lower_operands(node, state);
      }
    }
    return;
  }
  const Node* wrapped = wrapped_node(scoped);
  const c10::FunctionSchema* schema = wrapped->maybeSchema();
  if (!schema || !wrapped->kind().is_aten()) {
    return;
  }
  const std::string name = name_of_definition(*schema);
  for (const Source& source : kSources) {
    if (has_definition(source.text, name) && source.holds(*schema, state)) {
      auto body = definition(source.text, name);
      Scopes scopes = find_scopes(*body, state);
      for (const Node* node : all_nodes(*body)) {
        if (node->kind() == wrapped->kind()) {
          scopes.state.erase(node);
        }
      }
      lower(body, scopes, state, Product::exported);
      replace_by(unwrap(scoped), source.text, name, *body);
      return;
    }
  }
}

}  // namespace

void decompose(const std::shared_ptr<torch::jit::Graph>& graph) {
  for (Node* node : all_nodes(*graph)) {
    if (ops::is_scoped(node)) {
      decompose(node);
    }
  }
}

bool is_decomposed(const c10::FunctionSchema& op, c10::DeviceType device) {
  State state;
  state.devices[device] = {true, c10::kBFloat16};
  return std::any_of(std::begin(kSources), std::end(kSources), [&](const Source& source) {
    return has_definition(source.text, name_of_definition(op)) && source.holds(op, state);
  });
}

}  // namespace jit_amp
