// plan: what is to be done to each node of a flat graph, so that autocast is in it.
//
// The one place where a policy (analysis/policy.h) becomes an action. `lower` carries a plan out;
// the report of what freezing does (analysis/reach.h) and the tracer's restoring of casts
// (runtime/record.h) ask for the action of one operator.
//
// An analysis: it changes nothing. The graph's scopes have to be known.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <vector>

#include "analysis/policy.h"
#include "analysis/scopes.h"

namespace jit_amp {

enum class Destination : uint8_t {
  in_process,  // the dispatcher's own autocast is at hand
  stock        // PyTorch's own operators are all there is: jit_amp.freeze, jit_amp.export
};

// What is done to a node for one device.
enum class Action : uint8_t {
  none,
  to_scope,    // operands are cast to the scope's dtype
  to_float32,  // operands are cast to float32
  promote,     // operands are cast to the widest dtype among them
  set_dtype,   // the argument `dtype` becomes float32 where the call gives none
  dispatch,  // it runs under the dispatcher's own autocast; in a stock graph `decompose` writes it
             // out, or `legalize` finds it untouched or refuses it
};

// What to do to an operator with this policy, where autocast is on for `device`.
Action action_of(Policy policy, c10::DeviceType device, Destination destination);

// What is to be done to one node. A node to which nothing is done has none.
struct NodePlan {
  torch::jit::Node* node;
  const AutocastState* state;  // in force at the node; the Scopes own it
  Action cpu = Action::none;
  Action accelerator = Action::none;  // for the device that accelerator_of gives
  // Some device needs the dispatcher's autocast: the whole node, with its blocks, becomes one
  // `jit_amp::scoped`.
  bool dispatches = false;
  std::optional<c10::DeviceType> query = std::nullopt;  // it asks for this device's state
  bool queries_by_name = false;  // it asks for that of a device which is known at run time only
};

// The accelerator whose casts are in a lowered graph, beside the CPU's. In process CUDA, as the
// dispatcher does the rest; else the first that a scope switches on, as a stock graph has room for
// one.
c10::DeviceType accelerator_of(const Scopes& scopes, const AutocastState& entry,
                               Destination destination);

// In program order, each node before what its blocks hold. `entry` is the state that `scopes` was
// found with.
std::vector<NodePlan> plan_of(torch::jit::Graph& graph, const Scopes& scopes,
                              const AutocastState& entry, Destination destination);

// Whether the node asks whether autocast is enabled, rather than for a dtype.
bool asks_whether_enabled(const torch::jit::Node* node);

}  // namespace jit_amp
