#include "analysis/expected.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <unordered_set>

#include "analysis/facts.h"
#include "analysis/observed.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

DTypes cast_by_autocast() {
  return DTypes::only(c10::kFloat) | DTypes::only(c10::kBFloat16) | DTypes::only(c10::kHalf);
}

// Whether the node may put a tensor on another device than its operands are on.
bool moves(const Node* node) {
  static const auto kCpu = Symbol::aten("cpu");
  static const auto kCuda = Symbol::aten("cuda");
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (!schema) {
    return is_call(node);
  }
  if (node->kind() == kCpu || node->kind() == kCuda) {
    return true;
  }
  const auto at = schema->argumentIndexWithName("device");
  return node->kind().is_aten() && at && node->inputs().size() > static_cast<size_t>(*at) &&
         !node->input(*at)->mustBeNone() && node->input(*at)->node()->kind() != prim::device;
}

// The one device that all weights are on, where nothing is moved.
std::optional<c10::DeviceType> device_of_weights(Graph& graph) {
  std::unordered_set<c10::DeviceType> devices;
  const auto add = [&](const at::Tensor& tensor) {
    if (tensor.defined() && tensor.dim() > 0) {
      devices.insert(tensor.device().type());
    }
  };
  for (Node* node : all_nodes(graph)) {
    if (moves(node)) {
      return std::nullopt;
    }
    const auto constant = node->kind() == prim::Constant ? toIValue(node->output()) : std::nullopt;
    if (constant && constant->isTensor()) {
      add(constant->toTensor());
    } else if (constant && constant->isTensorList()) {
      for (const at::Tensor& tensor : constant->toTensorVector()) {
        add(tensor);
      }
    }
  }
  return devices.size() == 1 ? std::optional(*devices.begin()) : std::nullopt;
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

bool is_tensor(const Value* value) { return value->type()->kind() == c10::TypeKind::TensorType; }

// Notes the graph's inputs from which `value` has its dtype.
void follow(const Value* value, std::unordered_set<const Value*>& found) {
  const Node* node = value->node();
  if (node->kind() == prim::Param) {
    found.insert(value);
  } else if (node->kind() == ops::carried && node->owningBlock() == node->owningGraph()->block()) {
    follow(node->input(), found);
  } else if (!node->outputs().empty() && value == node->outputs()[0]) {
    const auto same = same_as_result(node);
    if (same.size() == 1 && same[0] < node->inputs().size() && is_tensor(node->input(same[0]))) {
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

std::vector<Known> expected_inputs(const std::shared_ptr<Graph>& graph) {
  const auto nodes = all_nodes(*graph);
  const bool has_casts = std::any_of(nodes.begin(), nodes.end(),
                                     [](const Node* node) { return node->kind() == ops::cast; });
  const auto device = has_casts ? device_of_weights(*graph) : std::nullopt;
  if (!device) {
    return {};
  }
  std::vector<Known> inputs;
  for (const Value* input : graph->inputs()) {
    inputs.push_back(is_tensor(input) ? Known::of_tensor({DTypes::any(), device, Dims::unknown})
                                      : Known{});
  }
  const auto eligible = eligible_inputs(*graph, find_facts(graph, inputs));
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (eligible.count(graph->inputs()[i])) {
      inputs[i].fact.dtypes = cast_by_autocast();
    }
  }
  return inputs;
}

}  // namespace jit_amp
