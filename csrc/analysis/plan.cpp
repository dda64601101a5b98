#include "analysis/plan.h"

#include "analysis/hidden_calls.h"
#include "core/devices.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::DeviceType;

const Symbol kIsEnabled = Symbol::aten("is_autocast_enabled");
const Symbol kIsCpuEnabled = Symbol::aten("is_autocast_cpu_enabled");
const Symbol kGetDtype = Symbol::aten("get_autocast_dtype");
const Symbol kGetCpuDtype = Symbol::aten("get_autocast_cpu_dtype");
const Symbol kGetCudaDtype = Symbol::aten("get_autocast_gpu_dtype");

bool is_query(const Node* node) {
  return node->kind() == kIsEnabled || node->kind() == kIsCpuEnabled || node->kind() == kGetDtype ||
         node->kind() == kGetCpuDtype || node->kind() == kGetCudaDtype;
}

// The device that a query asks about, if it is known; without an argument it is CUDA's. Of a third
// device, a state says something only where a scope names it.
std::optional<DeviceType> query_device(const Node* node, const AutocastState& state) {
  if (node->kind() == kIsCpuEnabled || node->kind() == kGetCpuDtype) {
    return DeviceType::CPU;
  }
  if (node->inputs().empty()) {
    return DeviceType::CUDA;
  }
  const auto name = constant_as<std::string>(node->input(0));
  auto devices = state.named();
  devices.insert({DeviceType::CPU, DeviceType::CUDA});
  for (const DeviceType device : devices) {
    if (name == c10::DeviceTypeName(device, /*lower_case=*/true)) {
      return device;
    }
  }
  return std::nullopt;
}

std::optional<NodePlan> planned(Node* node, const AutocastState& state, const AutocastState& entry,
                                Destination destination, DeviceType accelerator) {
  NodePlan plan{node, &state};
  if (is_query(node)) {
    plan.query = query_device(node, state);
    if (!plan.query && (state.active() || state != entry)) {
      plan.dispatches = destination == Destination::in_process;
      plan.queries_by_name = !plan.dispatches && !toIValue(node->input(0));
    }
    const bool is_planned = plan.query || plan.dispatches || plan.queries_by_name;
    return is_planned ? std::optional(plan) : std::nullopt;
  }
  for (const DeviceType device : state.named()) {
    // A third device's ambient autocast is not suspended: it has to be switched off.
    const bool is_known = device == DeviceType::CPU || device == accelerator;
    const bool switches_off = !is_known && destination == Destination::in_process;
    if (!state.active(device) && !switches_off) {
      continue;
    }
    const Policy policy = policy_of(node, device);
    const Action action = is_known                      ? action_of(policy, device, destination)
                          : policy == Policy::untouched ? Action::none
                                                        : Action::dispatch;
    if (action == Action::dispatch) {
      plan.dispatches = true;
    } else if (device == DeviceType::CPU) {
      plan.cpu = action;
    } else if (device == accelerator) {
      plan.accelerator = action;
    }
  }
  // Calls see the state even where it is off: its dtype can be asked for.
  plan.dispatches |= is_call(node) && state != entry;
  if (GraphFunction* callee = hidden_callee(node)) {
    plan.dispatches |=
        (state.active() || entry.active()) && concerns_autocast(*callee, accelerator);
  }
  if (plan.dispatches || plan.cpu != Action::none || plan.accelerator != Action::none) {
    return plan;
  }
  return std::nullopt;
}

void collect_plans(Block* block, const Scopes& scopes, const AutocastState& entry,
                   Destination destination, DeviceType accelerator, std::vector<NodePlan>& plans) {
  for (Node* node : block->nodes()) {
    const auto found = scopes.state.find(node);
    if (found == scopes.state.end()) {
      continue;  // part of a scope
    }
    if (const auto plan = planned(node, *found->second, entry, destination, accelerator)) {
      plans.push_back(*plan);
      if (plan->dispatches) {
        continue;
      }
    }
    for (Block* inner : node->blocks()) {
      collect_plans(inner, scopes, entry, destination, accelerator, plans);
    }
    if (node->kind() == prim::fork) {
      collect_plans(node->g(attr::Subgraph)->block(), scopes, entry, destination, accelerator,
                    plans);
    }
  }
}

}  // namespace

Action action_of(Policy policy, DeviceType device, Destination destination) {
  if (!has_lists(device)) {
    return policy == Policy::untouched ? Action::none : Action::dispatch;
  }
  switch (policy) {
    case Policy::untouched:
      return Action::none;
    case Policy::lower:
      return Action::to_scope;
    case Policy::fp32:
      return Action::to_float32;
    case Policy::fp32_append_dtype:
      // The operand is cast, and no dtype appended: the result is the same, and complex numbers,
      // which autocast leaves alone, pass.
      return Action::to_float32;
    case Policy::fp32_opt_dtype:
      return Action::set_dtype;
    case Policy::promote:
      return Action::promote;
    case Policy::promote_inside:
      // cat and stack promote by themselves, to the same dtype. In process the dispatcher's
      // autocast is there to refuse what they do not: two reduced dtypes.
      return destination == Destination::in_process ? Action::dispatch : Action::none;
    case Policy::opaque:
    case Policy::banned:
      break;
  }
  return Action::dispatch;
}

DeviceType accelerator_of(const Scopes& scopes, const AutocastState& entry,
                          Destination destination) {
  if (destination == Destination::stock) {
    for (const DeviceType device : kAccelerators) {
      if (entry.active(device) ||
          std::any_of(scopes.states.begin(), scopes.states.end(),
                      [&](const auto& state) { return state->active(device); })) {
        return device;
      }
    }
  }
  return DeviceType::CUDA;
}

bool asks_whether_enabled(const Node* node) {
  return node->kind() == kIsEnabled || node->kind() == kIsCpuEnabled;
}

std::vector<NodePlan> plan_of(Graph& graph, const Scopes& scopes, const AutocastState& entry,
                              Destination destination) {
  std::vector<NodePlan> plans;
  collect_plans(graph.block(), scopes, entry, destination,
                accelerator_of(scopes, entry, destination), plans);
  return plans;
}

}  // namespace jit_amp
