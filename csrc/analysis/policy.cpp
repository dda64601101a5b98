#include "analysis/policy.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/enum_tag.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/csrc/jit/ir/ir.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <optional>
#include <unordered_map>
#include <unordered_set>

#include "analysis/traits.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/forks.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using Table = std::unordered_map<std::string, Policy>;

// The rows of a table that hold in this release of PyTorch: of operators that it has a kernel for.
Table with_kernels(Table table, c10::DispatchKey key) {
  for (auto row = table.begin(); row != table.end();) {
    const auto op = c10::Dispatcher::singleton().findOp(parseName(row->first));
    row = op && !op->hasKernelForDispatchKey(key) ? table.erase(row) : std::next(row);
  }
  return table;
}

Table cpu_table() {
  const Table table{
#define POLICY(policy, overload) {"aten::" overload, Policy::policy},
#include "analysis/cpu_policy.inc"
#undef POLICY
  };
  return with_kernels(table, c10::DispatchKey::AutocastCPU);
}

// The header's macros list an operator as (op) or (op, overload), and `norm` with its redispatch
// signature.
#define JIT_AMP_NAME_1(op) "aten::" #op
#define JIT_AMP_NAME_2(op, overload) "aten::" #op "." #overload
#define JIT_AMP_PICK(_1, _2, name, ...) name
#define JIT_AMP_NAME(...) JIT_AMP_PICK(__VA_ARGS__, JIT_AMP_NAME_2, JIT_AMP_NAME_1)(__VA_ARGS__)
#define JIT_AMP_LOWER(...) {JIT_AMP_NAME(__VA_ARGS__), Policy::lower},
#define JIT_AMP_FP32(...) {JIT_AMP_NAME(__VA_ARGS__), Policy::fp32},
#define JIT_AMP_OPT_DTYPE(...) {JIT_AMP_NAME(__VA_ARGS__), Policy::fp32_opt_dtype},
#define JIT_AMP_APPEND_DTYPE(op, name, registered, redispatched, policy) \
  {"aten::" name, Policy::fp32_append_dtype},
#define JIT_AMP_PROMOTE(...) {JIT_AMP_NAME(__VA_ARGS__), Policy::promote},

Table mps_table() {
  const Table table{
#define POLICY(policy, overload) {"aten::" overload, Policy::policy},
#include "analysis/mps_policy.inc"
#undef POLICY
  };
  return with_kernels(table, c10::DispatchKey::AutocastMPS);
}

Table xpu_table() {
  return {
      AT_FORALL_LOWER_PRECISION_FP(JIT_AMP_LOWER)  //
      AT_FORALL_FP32(JIT_AMP_FP32)                 //
      AT_FORALL_FP32_SET_OPT_DTYPE(JIT_AMP_OPT_DTYPE)
          AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(JIT_AMP_APPEND_DTYPE)
              AT_FORALL_PROMOTE(JIT_AMP_PROMOTE)
      // Registered beside the macros in aten/src/ATen/autocast_mode.cpp.
      {"aten::binary_cross_entropy", Policy::banned},
      // A kernel of its own, not of a list's kind.
      {"aten::linalg_matrix_sqrth", Policy::opaque},
  };
}

Table cuda_table() {
  Table table = xpu_table();
  table.insert({{"aten::cudnn_convolution", Policy::lower},
                {"aten::cudnn_convolution_transpose", Policy::lower},
                {"aten::_cudnn_rnn", Policy::opaque}});
  return table;
}

// Whether the operator is a plain one, whose kernels are not made of others: views, what PyTorch
// calls elementary, and what only fills, moves or copies.
bool is_elementary(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  const auto name = c10::Symbol::fromQualString(schema.name());
  return !op || op->hasTag(at::Tag::core) || op->hasTag(at::Tag::pointwise) ||
         traits_in_place_or_not(name).group == Group::moving ||
         std::any_of(schema.returns().begin(), schema.returns().end(),
                     [](const c10::Argument& result) {
                       return result.alias_info() && !result.alias_info()->isWrite();
                     });
}

// Code that is shared, and made of kernels that are not.
bool is_linear_algebra(const std::string& name) {
  const auto op = c10::Symbol::fromQualString(name);
  return name.rfind("aten::linalg_", 0) == 0 || traits_of(op).group == Group::algebra;
}

const Table& table(c10::DeviceType device) {
  static const Table cpu = cpu_table();
  static const Table cuda = cuda_table();
  static const Table xpu = xpu_table();
  static const Table mps = mps_table();
  static const Table none;
  return device == c10::DeviceType::CPU    ? cpu
         : device == c10::DeviceType::CUDA ? cuda
         : device == c10::DeviceType::XPU  ? xpu
         : device == c10::DeviceType::MPS  ? mps
                                           : none;
}

// What an operator without an autocast kernel reaches, on the device.
InnerAutocast inner_autocast_of(const c10::FunctionSchema& schema, c10::DeviceType device) {
  const Observed* seen = observed(schema.operator_name());
  if (!seen || !has_lists(device)) {
    return InnerAutocast::cast;
  }
  if (device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA) {
    return device == c10::DeviceType::CPU ? seen->cpu : seen->cuda;
  }
  // XPU's lists are CUDA's. MPS has none that CUDA has not, but for batch_norm and a convolution of
  // its own.
  const bool reaches_batch_norm = schema.name() == "aten::instance_norm";
  const bool is_seen =
      is_elementary(schema) || (is_shared_code(schema) && !is_linear_algebra(schema.name()));
  return !is_seen || (device == c10::DeviceType::MPS && reaches_batch_norm) ? InnerAutocast::cast
                                                                            : seen->cuda;
}

// Policies that users stated, by operator name (with or without overload) and device.
Lock stated_lock;
std::atomic<uint64_t> stated_version{0};
std::map<std::pair<std::string, c10::DeviceType>, Policy>& stated() {
  static auto& policies = *new std::map<std::pair<std::string, c10::DeviceType>, Policy>;
  return policies;
}

bool takes_tensor(const c10::FunctionSchema& schema) {
  return std::any_of(schema.arguments().begin(), schema.arguments().end(),
                     [](const auto& argument) { return mentions_tensors(argument.type()); });
}

// torch.profiler.record_function: it takes a name, and computes nothing.
bool is_of_profiler(const c10::FunctionSchema& schema) {
  return schema.name().rfind("profiler::", 0) == 0;
}

// Nodes without a schema: the language itself. Calls are not among them.
bool is_structural(c10::Symbol kind) {
  static const std::unordered_set<c10::Symbol> kinds{prim::Constant,       prim::If,
                                                     prim::Loop,           prim::ListConstruct,
                                                     prim::ListUnpack,     prim::TupleConstruct,
                                                     prim::TupleUnpack,    prim::TupleIndex,
                                                     prim::TupleSlice,     prim::DictConstruct,
                                                     prim::GetAttr,        prim::SetAttr,
                                                     prim::HasAttr,        prim::CreateObject,
                                                     prim::Return,         prim::Param,
                                                     prim::unchecked_cast, prim::isinstance,
                                                     prim::RaiseException, prim::Print,
                                                     prim::Uninitialized,  prim::fork,
                                                     prim::Enter,          prim::Exit,
                                                     prim::Store,          prim::Load,
                                                     prim::Closure};
  return kinds.count(kind) != 0;
}

// What lowering puts into a graph casts by itself.
bool is_of_lowering(c10::Symbol kind) {
  return kind == ops::cast || kind == ops::widest || kind == ops::opt_dtype ||
         kind == ops::ambient_dtype || kind == ops::deferred;
}

}  // namespace

Policy policy_of(const Node* node, c10::DeviceType device) {
  if (is_structural(node->kind()) || is_of_lowering(node->kind())) {
    return Policy::untouched;
  }
  const c10::FunctionSchema* schema = node->maybeSchema();
  if (!schema || node->kind() == prim::PythonOp) {
    return Policy::opaque;
  }
  return policy_of(*schema, device);
}

std::optional<Policy> stated_for(const c10::OperatorName& name, c10::DeviceType device) {
  const std::lock_guard lock(stated_lock);
  for (const auto& spelling : {toString(name), name.name}) {
    if (auto found = stated().find({spelling, device}); found != stated().end()) {
      return found->second;
    }
  }
  return std::nullopt;
}

bool is_stated(const Node* node) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  const std::lock_guard lock(stated_lock);
  return schema && std::any_of(stated().begin(), stated().end(), [&](const auto& row) {
           const auto& name = schema->operator_name();
           return row.first.first == name.name || row.first.first == toString(name);
         });
}

Policy policy_of(const c10::FunctionSchema& schema, c10::DeviceType device) {
  const c10::OperatorName name = schema.operator_name();
  if (auto policy = stated_for(name, device)) {
    return *policy;
  }
  const auto key = at::autocast::is_autocast_available(device)
                       ? at::autocast::get_autocast_dispatch_key_from_device_type(device)
                       : c10::DispatchKey::Undefined;
  const auto handle = c10::Dispatcher::singleton().findOp(name);
  if (handle && handle->hasKernelForDispatchKey(key)) {
    const Table& known = table(device);
    auto found = known.find(toString(name));
    return found == known.end() ? Policy::opaque : found->second;
  }
  // The overloads of resizing that take scale factors call those that do not.
  if (name.overload_name == "vec") {
    const auto plain = c10::Dispatcher::singleton().findOp({name.name, ""});
    if (plain && plain->hasKernelForDispatchKey(key)) {
      return policy_of(plain->schema(), device);
    }
  }
  // An operator of TorchScript alone that takes no tensor can reach none that autocast casts.
  if (!handle && !takes_tensor(schema)) {
    return Policy::untouched;
  }
  if (is_of_profiler(schema)) {
    return Policy::untouched;
  }
  switch (inner_autocast_of(schema, device)) {
    case InnerAutocast::nothing:
      return Policy::untouched;
    case InnerAutocast::promote:
      return Policy::promote_inside;
    default:
      return Policy::opaque;
  }
}

bool is_shared_code(const c10::FunctionSchema& schema) {
  const auto op = c10::Dispatcher::singleton().findOp(schema.operator_name());
  return op && (op->hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) ||
                op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd));
}

void state_policy(const std::string& name, c10::DeviceType device, Policy policy) {
  const std::lock_guard lock(stated_lock);
  stated()[{name, device}] = policy;
  ++stated_version;
}

std::optional<Policy> forget_policy(const std::string& name, c10::DeviceType device) {
  const std::lock_guard lock(stated_lock);
  const auto found = stated().find({name, device});
  if (found == stated().end()) {
    return std::nullopt;
  }
  const Policy policy = found->second;
  stated().erase(found);
  ++stated_version;
  return policy;
}

uint64_t policy_version() { return stated_version.load(); }

std::vector<std::pair<std::string, Policy>> policy_table(c10::DeviceType device) {
  const Table& known = table(device);
  return {known.begin(), known.end()};
}

namespace {
// In the order of Policy.
constexpr const char* kPolicies[]{"opaque",  "untouched",      "lower",
                                  "fp32",    "fp32_opt_dtype", "fp32_append_dtype",
                                  "promote", "promote_inside", "banned"};
static_assert(std::size(kPolicies) == static_cast<size_t>(Policy::banned) + 1);
}  // namespace

const char* name_of(Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }

Policy policy_named(const std::string& name) {
  const auto* found = std::find(std::begin(kPolicies), std::end(kPolicies), name);
  if (found == std::end(kPolicies)) {
    throw std::invalid_argument("jit_amp: no policy is called '" + name + "'");
  }
  return static_cast<Policy>(found - std::begin(kPolicies));
}

}  // namespace jit_amp
