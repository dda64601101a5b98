// policy: what autocast does to an operator, per device and exact overload.
//
// The answers are PyTorch's. CUDA's and XPU's lists come from the macros of the installed
// ATen/autocast_mode.h. CPU's and MPS's stand in cpu_policy.inc and mps_policy.inc, and what is
// registered beside the macros in policy.cpp, because PyTorch has those only in a .cpp file
// (aten/src/ATen/autocast_mode.cpp). Policies that a user states for an operator come before them.
// An operator without an autocast kernel is `untouched` only if it was seen to reach no operator
// that autocast casts (Observed in traits.h), `promote_inside` if it reached only ones that
// promote; else, and where nothing was seen, it is `opaque`. An overload `vec`, such as
// `upsample_bilinear2d.vec`, has the policy of the one without. What kernels call was seen of
// CPU's, and read of CUDA's. Of XPU's and MPS's that is believed where they share the code, but for
// linear algebra, or where PyTorch calls the operator elementary (its tags `core` and `pointwise`).
//
// An analysis: it looks at one operator. What users state holds for the process.
#pragma once

#include <c10/core/DeviceType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace jit_amp {

enum class Policy : uint8_t {
  opaque,             // unknown: only the dispatcher's own autocast is right
  untouched,          // autocast does nothing to it
  lower,              // operands to the scope's dtype
  fp32,               // operands to float32
  fp32_opt_dtype,     // result dtype float32 unless the call gives one
  fp32_append_dtype,  // the overload with a dtype, called with float32
  promote,            // operands to the widest floating dtype among them
  promote_inside,     // a composite that reaches only operators that promote
  banned,             // refused by autocast, with advice
};

// The policy of `node` inside an enabled autocast scope for `device`.
Policy policy_of(const torch::jit::Node* node, c10::DeviceType device);

// The same of any operator; `opaque` for one that takes tensors and of which nothing is known.
Policy policy_of(const c10::FunctionSchema& schema, c10::DeviceType device);

// Whether all devices run the same code for the operator, down to the operators that it calls.
bool is_shared_code(const c10::FunctionSchema& schema);

// States the policy of an operator ("ns::name" or "ns::name.overload") for a device, and takes it
// back. What was lowered before is lowered anew when it is called.
void state_policy(const std::string& name, c10::DeviceType device, Policy policy);
// Returns what was stated, if anything was.
std::optional<Policy> forget_policy(const std::string& name, c10::DeviceType device);

// What was stated of an overload, or of all overloads of its name.
std::optional<Policy> stated_for(const c10::OperatorName& name, c10::DeviceType device);

// Whether a policy was stated for the node's operator, for any device.
bool is_stated(const torch::jit::Node* node);

// Changes whenever what is stated does.
uint64_t policy_version();

// The table of one device: overload name ("aten::sum.dim_IntList") and policy. Empty for devices
// without lists (core/devices.h).
std::vector<std::pair<std::string, Policy>> policy_table(c10::DeviceType device);

// "lower", "fp32", …; policy_named throws std::invalid_argument for another name.
const char* name_of(Policy policy);
Policy policy_named(const std::string& name);

}  // namespace jit_amp
