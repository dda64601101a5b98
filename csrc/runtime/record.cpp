#include "runtime/record.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <array>
#include <map>
#include <vector>

#include "analysis/plan.h"
#include "core/ambient.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An operator that is running.
struct Running {
  bool is_operator;  // and no autograd.Function, whose Python code may open scopes
  PerDevice autocast;
  PerDevice switched_off{};   // by its own autocast kernel
  std::vector<bool> given{};  // its arguments: whether they are not None
  Node* before = nullptr;     // the last node of the trace when it began

  bool has_kernel() const {
    return is_operator &&
           std::find(switched_off.begin(), switched_off.end(), true) != switched_off.end();
  }
};
thread_local std::vector<Running> running_now;

bool is_tracing() {
  return tracer::isTracing() && !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::Tracer);
}

Graph& trace() { return *tracer::getTracingState()->graph; }

int64_t count(const Block* block) {
  int64_t entered = 0;
  for (const Node* node : block->nodes()) {
    entered += node->kind() == ops::enter;
    for (const Block* inner : node->blocks()) {
      entered += count(inner);
    }
  }
  return entered;
}

Node* marker(c10::Symbol kind, int64_t scope) {
  Node* node = trace().insertNode(trace().create(kind, 0));
  node->i_(ops::scope, scope);
  tracer::recordSourceLocation(node);
  return node;
}

int64_t enter(const Around& scope, bool dtype_given) {
  // The same in every trace of a function, which check_trace compares.
  const int64_t number = count(trace().block());
  Node* node = marker(ops::enter, number);
  if (scope.where) {
    node->setSourceRange(*scope.where);
  }
  node->s_(ops::device_type, scope.device_type);
  node->i_(ops::dtype, *scope.dtype);
  node->i_(ops::dtype_given, dtype_given);
  node->i_(ops::enabled, scope.enabled);
  if (scope.cache_enabled) {
    node->i_(ops::cache_enabled, *scope.cache_enabled);
  }
  return number;
}

// The state that torch.autocast objects have made, and what ran in another one first.
struct Expected {
  PerDevice enabled{};
  std::array<c10::ScalarType, kDeviceCount> dtype{};
  bool operator==(const Expected&) const = default;
};
thread_local Expected expected;
thread_local std::string astray;

Expected state_now() {
  Expected now{autocasts_on()};
  std::transform(kDevices.begin(), kDevices.end(), now.dtype.begin(),
                 at::autocast::get_autocast_dtype);
  return now;
}

// The state now, and what is about to be said, or just was, of one device.
void expect(const Around& scope) {
  expected = state_now();
  const auto device = c10::Device(scope.device_type).type();
  const auto found = std::find(kDevices.begin(), kDevices.end(), device);
  if (found != kDevices.end()) {
    expected.enabled[found - kDevices.begin()] = scope.enabled;
    expected.dtype[found - kDevices.begin()] = static_cast<c10::ScalarType>(*scope.dtype);
  }
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  if (running_now.empty() && function.operator_name() && astray.empty() && is_tracing() &&
      !(state_now() == expected)) {
    astray = function.name();
  }
  if (running_now.empty() && is_tracing()) {
    // A scope switches it on for itself: a cast that it hands out again would be no operator.
    at::autocast::set_autocast_cache_enabled(false);
  }
  Running now{function.operator_name().has_value(), autocasts_on()};
  if (is_tracing()) {
    now.before = trace().insertPoint()->prev();
    for (const c10::IValue& argument : function.inputs()) {
      now.given.push_back(!argument.isNone());
    }
  }
  if (!running_now.empty() && running_now.back().is_operator) {
    for (size_t i = 0; i < kDeviceCount; ++i) {
      running_now.back().switched_off[i] |= running_now.back().autocast[i] && !now.autocast[i];
    }
  }
  running_now.push_back(now);
  return nullptr;
}

// The dtype to which the operator's autocast kernel casts all operands, if it does that.
std::optional<c10::ScalarType> dtype_of_operands(const c10::OperatorName& name,
                                                 c10::DeviceType device) {
  const std::string full =
      name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
  for (const auto& [overload, policy] : policy_table(device)) {
    const Action action = action_of(policy, device, Destination::in_process);
    if (overload == full && action == Action::to_scope) {
      return at::autocast::get_autocast_dtype(device);
    }
    if (overload == full && action == Action::to_float32) {
      return c10::kFloat;
    }
  }
  return std::nullopt;
}

// `operand` as a tensor. Where a module has methods under `@torch.jit.export`, PyTorch takes the
// types of its attributes from annotations, and puts them in when the trace is complete: of an
// Optional it knows no operator that casts.
Value* as_tensor(Value* operand, Node* before, int64_t scope) {
  if (operand->node()->kind() != prim::TracedAttr) {
    return operand;
  }
  const WithInsertPoint here(before);
  Node* unwrap = trace().insertNode(trace().create(aten::_unwrap_optional, {operand}, 1));
  unwrap->output()->setType(operand->type());
  unwrap->i_(ops::of_autocast, scope);
  return unwrap->output();
}

// Casts for those operands that did not need one in the example.
void cast_others(Node* first, const std::string& device, c10::ScalarType dtype, int64_t scope) {
  Node* const end = trace().insertPoint();
  const WithInsertPoint here(first);
  std::map<Value*, Value*> done;
  for (Node* node = first; node != end; node = node->next()) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      Value* operand = node->input(i);
      const bool is_outside =
          operand->node()->kind() == prim::Param || operand->node()->isBefore(first);
      if (!is_tensor(operand->type()) || !is_outside ||
          operand->node()->hasAttribute(ops::of_autocast)) {
        continue;
      }
      Value*& cast = done[operand];
      if (!cast) {
        Value* none = trace().insertConstant(c10::IValue());
        Value* to = trace().insertConstant(static_cast<int64_t>(dtype));
        Value* tensor = as_tensor(operand, none->node(), scope);
        Node* made = trace().insertNode(trace().create(
            ops::cast, {tensor, device == "cpu" ? to : none, device == "cpu" ? none : to}, 1));
        made->output()->setType(c10::TensorType::get());
        made->i_(ops::of_autocast, scope);
        cast = made->output();
      }
      node->replaceInput(i, cast);
    }
  }
}

// CUDA's autocast gives reductions a dtype that the author has not given (fp32_set_opt_dtype and
// fp32_append_dtype in ATen/autocast_mode.h).
void take_back_dtype(const Running& done, Node* node, const c10::OperatorName& name) {
  const auto* recorded = node->maybeSchema();
  const auto called = c10::Dispatcher::singleton().findSchema(name);
  if (!recorded || !called) {
    return;
  }
  const auto at = recorded->argumentIndexWithName("dtype");
  if (!at) {
    return;
  }
  const auto given = called->schema().argumentIndexWithName("dtype");
  if (!given) {
    node->removeInput(*at);
  } else if (!done.given[*given]) {
    const WithInsertPoint here(node);
    node->replaceInput(*at, trace().insertConstant(c10::IValue()));
  }
}

// What the operator's own autocast kernel has recorded: casts, and the operator. Where the tracer
// records others for it (`_convolution` for conv2d), those ran without autocast.
void look_at_kernel(const Running& done, c10::Symbol kind, const c10::OperatorName& name) {
  std::vector<Node*> casts;
  Node* first = nullptr;
  bool is_itself = true;
  Node* const end = trace().insertPoint();
  for (Node* node = done.before->next(); node != end; node = node->next()) {
    if (node->hasAttribute(ops::of_autocast)) {
      casts.push_back(node);
    } else if (node->kind() != prim::Constant && node->kind() != prim::ListConstruct) {
      is_itself &= !first && node->kind() == kind;
      first = first ? first : node;
    }
  }
  if (is_itself && first) {
    take_back_dtype(done, first, name);
  }
  if (is_itself || !first) {
    return;
  }
  std::vector<int64_t> scopes;
  for (size_t i = 0; i < kDeviceCount; ++i) {
    if (!done.switched_off[i]) {
      continue;
    }
    const std::string device = c10::DeviceTypeName(kDevices[i], /*lower_case=*/true);
    const auto dtype = at::autocast::get_autocast_dtype(kDevices[i]);
    {
      const WithInsertPoint here(first);
      scopes.push_back(enter({device, static_cast<int64_t>(dtype), false}, /*dtype_given=*/false));
      first->prev()->s_(ops::instead_of, kind.toQualString());
    }
    if (const auto to = dtype_of_operands(name, kDevices[i])) {
      cast_others(first, device, *to, scopes.back());
    }
  }
  for (Node* cast : casts) {
    cast->i_(ops::of_autocast, scopes[0]);
  }
  for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
    marker(ops::exit, *scope);
  }
}

void end(const at::RecordFunction& function, at::ObserverContext*) {
  const Running done = running_now.back();
  running_now.pop_back();
  if (!done.before || !is_tracing() ||
      done.before->owningBlock() != trace().insertPoint()->owningBlock()) {
    return;
  }
  Node* const last = trace().insertPoint()->prev();
  if (last != done.before && last->kind() == aten::_convolution &&
      std::string_view(function.name()) == "aten::convolution" && running_now.empty()) {
    last->s_(ops::instead_of, function.name());
  }
  if (done.has_kernel()) {
    look_at_kernel(done, c10::Symbol::fromQualString(function.name()), *function.operator_name());
  }
  if (!running_now.empty() && running_now.back().is_operator &&
      std::string_view(function.name()) == "aten::to") {
    Node* node = trace().insertPoint()->prev();
    if (node->kind() == aten::to && is_switched_off(running_now.back().autocast, done.autocast)) {
      node->i_(ops::of_autocast, ops::of_the_operator);
      node->replaceInput(0, as_tensor(node->input(0), node, ops::of_the_operator));
    }
  }
}

// The scopes that are open where a trace runs as it is.
thread_local std::map<int64_t, std::unique_ptr<AutocastGuard>> open_scopes;

Operation make_enter(const Node* node) {
  const AutocastSetting setting{c10::Device(node->s(ops::device_type)).type(),
                                node->i(ops::enabled) != 0,
                                static_cast<c10::ScalarType>(node->i(ops::dtype))};
  const int64_t scope = node->i(ops::scope);
  return [=](Stack&) {
    open_scopes.erase(scope);
    open_scopes[scope] =
        std::make_unique<AutocastGuard>(std::vector<AutocastSetting>{setting}, std::nullopt);
  };
}

Operation make_exit(const Node* node) {
  const int64_t scope = node->i(ops::scope);
  return [=](Stack&) { open_scopes.erase(scope); };
}

const RegisterOperators recorded_operators({
    Operator(ops::enter, make_enter, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(ops::exit, make_exit, c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace

TraceRecording::TraceRecording()
    : handle_(at::addThreadLocalCallback(at::RecordFunctionCallback(begin, end)
                                             .needsInputs(true)
                                             .scopes({at::RecordScope::FUNCTION}))) {
  expected = state_now();
  astray.clear();
}

void TraceRecording::stop() {
  if (!handle_) {
    return;
  }
  at::removeCallback(*handle_);
  handle_.reset();
  running_now.clear();
  while (!open_scopes.empty()) {  // what an error left
    open_scopes.erase(std::prev(open_scopes.end()));
  }
}

void TraceRecording::check() const {
  if (!astray.empty()) {
    throw diagnostic(Diagnostic::state_of_nobody, nullptr, {c10::str(astray)});
  }
}

std::optional<int64_t> record_enter(const Around& scope, bool dtype_given) {
  expect(scope);
  return is_tracing() ? std::optional(enter(scope, dtype_given)) : std::nullopt;
}

void record_exit(int64_t scope, const Around& before) {
  expect(before);
  if (is_tracing()) {
    marker(ops::exit, scope);
  }
}

}  // namespace jit_amp
