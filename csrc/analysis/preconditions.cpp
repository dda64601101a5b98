#include "analysis/preconditions.h"

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/facts.h"
#include "analysis/traits.h"
#include "analysis/transfer.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

DTypes cast_by_autocast() {
  return DTypes::only(c10::kFloat) | DTypes::only(c10::kBFloat16) | DTypes::only(c10::kHalf);
}

// The operand that a result shares its device with, if it is the only tensor that the node takes.
const Value* whose_device(const Node* node) {
  static const auto kCpu = Symbol::aten("cpu");
  static const auto kCuda = Symbol::aten("cuda");
  if (node->kind() == ops::cast || node->kind() == ops::carried) {
    return node->owningBlock() == node->owningGraph()->block() ? node->input(0) : nullptr;
  }
  const c10::FunctionSchema* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
  if (!schema || node->kind() == kCpu || node->kind() == kCuda) {
    return nullptr;
  }
  const auto at = schema->argumentIndexWithName("device");
  if (at && node->inputs().size() > static_cast<size_t>(*at) && !node->input(*at)->mustBeNone()) {
    return nullptr;
  }
  const Value* only = nullptr;
  for (const Value* input : node->inputs()) {
    if (is_plain(input->type()) || input->type()->isSubtypeOf(*c10::ListType::ofInts())) {
      continue;
    }
    if (only || !is_tensor(input->type())) {
      return nullptr;
    }
    only = input;
  }
  return only;
}

// The inputs that have to be on a device: whichever way the graph goes they meet a tensor that is
// there, in an operator that takes one device.
std::unordered_map<const Value*, c10::DeviceType> devices_of_inputs(Graph& graph,
                                                                    const Facts& facts) {
  std::unordered_map<const Value*, c10::DeviceType> found;
  for (const Node* node : graph.nodes()) {
    if (!takes_one_device(node)) {
      continue;
    }
    std::optional<c10::DeviceType> device;
    for (const Value* operand : node->inputs()) {
      const Fact fact = facts.of(operand);
      device = fact.dims == Dims::some && fact.device ? fact.device : device;
    }
    for (const Value* operand : node->inputs()) {
      const Value* from = operand;
      while (from && from->node()->kind() != prim::Param) {
        from = whose_device(from->node());
      }
      if (device && from && from->owningGraph() == &graph) {
        found.emplace(from, *device);
      }
    }
  }
  return found;
}

// The operands of which one has to have the dtype of the node's result.
std::vector<size_t> same_as_result(const Node* node) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  const Observed* seen =
      schema && node->kind().is_aten() ? observed(schema->operator_name()) : nullptr;
  if (!seen || seen->dtypes.empty() || seen->dtypes[0].kind != DtypeRule::same ||
      seen->dtypes[0].floats_only) {
    return {};
  }
  if (const auto at = schema->argumentIndexWithName("dtype");
      at && node->inputs().size() > static_cast<size_t>(*at) && !node->input(*at)->mustBeNone()) {
    return {};
  }
  return seen->dtypes[0].of;
}

// Notes the graph's inputs from which `value` has its dtype.
void follow(const Value* value, std::unordered_set<const Value*>& found) {
  const Node* node = value->node();
  if (node->kind() == prim::Param) {
    found.insert(value);
  } else if (node->kind() == ops::carried && node->owningBlock() == node->owningGraph()->block()) {
    follow(node->input(), found);
  } else if (!node->outputs().empty() && value == node->outputs()[0]) {
    const auto same = same_as_result(node);
    if (same.size() == 1 && same[0] < node->inputs().size() &&
        is_tensor(node->input(same[0])->type())) {
      follow(node->input(same[0]), found);
    }
  }
}

// The inputs that have to be of a dtype that autocast casts.
std::unordered_set<const Value*> eligible_inputs(Graph& graph, const Facts& facts) {
  std::unordered_set<const Value*> found;
  for (const Node* node : graph.nodes()) {  // those that run whichever way the graph goes
    const auto same = same_as_result(node);
    const bool meets_weight = std::any_of(same.begin(), same.end(), [&](size_t at) {
      const auto dtype =
          at < node->inputs().size() ? facts.of(node->input(at)).dtype() : std::nullopt;
      return dtype == c10::kBFloat16 || dtype == c10::kHalf;
    });
    for (const size_t at : same) {
      if (meets_weight && at < node->inputs().size() &&
          node->input(at)->node()->kind() == ops::cast) {
        follow(node->input(at)->node()->input(0), found);
      }
    }
  }
  return found;
}

}  // namespace

std::vector<AbstractValue> inferred_preconditions(const std::shared_ptr<Graph>& graph) {
  if (!contains(*graph, ops::cast)) {
    return {};
  }
  std::vector<AbstractValue> inputs(graph->inputs().size());
  const auto devices = devices_of_inputs(*graph, find_facts(graph, inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    const auto device = devices.find(graph->inputs()[i]);
    if (is_tensor(graph->inputs()[i]->type()) && device != devices.end()) {
      inputs[i] = AbstractValue::of_tensor({DTypes::any(), device->second, Dims::unknown});
    }
  }
  const auto eligible = eligible_inputs(*graph, find_facts(graph, inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].kind == AbstractValue::tensor && eligible.count(graph->inputs()[i])) {
      inputs[i].fact.dtypes = cast_by_autocast();
    }
  }
  return inputs;
}

}  // namespace jit_amp
