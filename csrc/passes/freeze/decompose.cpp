#include "passes/freeze/decompose.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <string>

#include "analysis/defined.h"
#include "analysis/modules.h"
#include "analysis/plan.h"
#include "analysis/scopes.h"
#include "core/dialect.h"
#include "core/graphs.h"
#include "core/loops.h"
#include "passes/lowering/lower.h"
#include "passes/lowering/share_casts.h"
#include "passes/source/specialize.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The state that a `jit_amp::scoped` node sets, if it is known when compiling.
std::optional<AutocastState> state_of(const Node* scoped, const Modules& tasks) {
  AutocastState state;
  const auto& devices = scoped->ss(ops::devices);
  for (size_t i = 0; i < devices.size(); ++i) {
    const auto enabled = constant_as<bool>(scoped->input(2 * i));
    const Value* given = scoped->input(2 * i + 1);
    while (const Value* outer = tasks.outside(given)) {
      given = outer;
    }
    const Node* dtype = given->node();
    if (!enabled || dtype->kind() != ops::deferred) {
      return std::nullopt;
    }
    state.devices[c10::Device(devices[i]).type()] = {
        *enabled, static_cast<c10::ScalarType>(dtype->i(attr::value))};
  }
  return state;
}

// The dtype that the policy `lower` casts to on the device, as a value at the insertion point.
Value* lower_dtype(Graph& graph, const AutocastState& state, c10::DeviceType device) {
  if (!state.active(device)) {
    return graph.insertConstant(c10::IValue());
  }
  Node* dtype = graph.insertNode(graph.create(ops::deferred, 1));
  dtype->i_(attr::value, static_cast<int64_t>(*state.at(device).dtype));
  return dtype->output()->setType(c10::IntType::get());
}

Value* lowered(Value* value, const AutocastState& state) {
  Graph& graph = *value->owningGraph();
  const auto accelerator = accelerator_of({}, state, Destination::stock);
  std::vector<Value*> operands{value, lower_dtype(graph, state, at::kCPU),
                               lower_dtype(graph, state, accelerator)};
  if (accelerator != at::kCUDA) {
    operands.push_back(
        graph.insertConstant(std::string(c10::DeviceTypeName(accelerator, /*lower_case=*/true))));
  }
  return graph.insertNode(graph.create(ops::cast, operands))
      ->output()
      ->setType(c10::TensorType::get());
}

// Puts the definition, lowered, in the node's place. Where it has the operator itself, that stands
// free of the scope; so does what is marked.
void define(Node* node, const AutocastState& state, const std::string& source,
            const std::string& name, const Lists& fixed) {
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
  lower(body, scopes, state, Destination::stock);
  share_casts(body);
  unmark_loops(*body);
  node->removeAllInputs();
  for (Value* operand : operands) {
    node->addInput(operand);
  }
  replace_by(node, source, name, *body);
}

// Returns whether the node had a definition, which now stands in its place.
bool decompose(Node* scoped, const Lists& fixed, const Modules& tasks) {
  const auto state = state_of(scoped, tasks);
  const c10::FunctionSchema* schema = wrapped_node(scoped)->maybeSchema();
  const auto found = state && schema ? defined(*schema, *state) : std::nullopt;
  if (found) {
    define(unwrap(scoped), *state, found->source, found->name, fixed);
  }
  return found.has_value();
}

}  // namespace

bool decompose(const std::shared_ptr<torch::jit::Graph>& graph) {
  bool changed_at_all = false;
  // Once more after each change: a definition may be in terms of composites.
  for (bool changed = true; changed;) {
    changed = false;
    const auto nodes = all_nodes(*graph);
    if (std::none_of(nodes.begin(), nodes.end(), ops::is_scoped)) {
      break;
    }
    const auto fixed = fixed_lists(graph);
    const Modules tasks(nullptr, *graph);
    for (Node* node : nodes) {
      changed |= ops::is_scoped(node) && decompose(node, fixed, tasks);
    }
    changed_at_all |= changed;
  }
  return changed_at_all;
}

}  // namespace jit_amp
