#include "runtime/record.h"

#include <torch/csrc/jit/frontend/tracer.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <array>
#include <map>
#include <vector>

#include "runtime/state.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

constexpr std::array<c10::DeviceType, 2> kDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA};

// An operator that is running.
struct Running {
  bool is_operator;  // and no autograd.Function, whose Python code may open scopes
  std::array<bool, 2> autocast;
  std::array<bool, 2> switched_off{};  // by its own autocast kernel
  Node* before;                        // the last node of the trace when it began
};
thread_local std::vector<Running> running;

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
  return number;
}

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  Running now{function.operator_name().has_value(),
              {at::autocast::is_autocast_enabled(kDevices[0]),
               at::autocast::is_autocast_enabled(kDevices[1])},
              {},
              is_tracing() ? trace().insertPoint()->prev() : nullptr};
  if (!running.empty() && running.back().is_operator) {
    for (size_t i = 0; i < kDevices.size(); ++i) {
      running.back().switched_off[i] |= running.back().autocast[i] && !now.autocast[i];
    }
  }
  running.push_back(now);
  return nullptr;
}

// What the operator's own autocast kernel has recorded: casts, and the operator. Where the tracer
// records others for it (`_convolution` for conv2d), those ran without autocast.
void look_at_kernel(const Running& done, c10::Symbol kind) {
  std::vector<Node*> casts;
  Node* first = nullptr;
  bool is_itself = true;
  Node* const end = trace().insertPoint();
  for (Node* node = done.before->next(); node != end; node = node->next()) {
    if (node->kind() == aten::to && node->hasAttribute(ops::of_autocast)) {
      casts.push_back(node);
    } else if (node->kind() != prim::Constant && node->kind() != prim::ListConstruct) {
      is_itself &= !first && node->kind() == kind;
      first = first ? first : node;
    }
  }
  if (is_itself || !first) {
    return;
  }
  std::vector<int64_t> scopes;
  for (size_t i = 0; i < kDevices.size(); ++i) {
    if (done.switched_off[i]) {
      const WithInsertPoint here(first);
      scopes.push_back(
          enter({c10::DeviceTypeName(kDevices[i], /*lower_case=*/true),
                 static_cast<int64_t>(at::autocast::get_autocast_dtype(kDevices[i])), false},
                /*dtype_given=*/false));
      first->prev()->s_(ops::instead_of, kind.toQualString());
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
  const Running done = running.back();
  running.pop_back();
  if (!done.before || !is_tracing() ||
      done.before->owningBlock() != trace().insertPoint()->owningBlock()) {
    return;
  }
  if (done.is_operator && (done.switched_off[0] || done.switched_off[1])) {
    look_at_kernel(done, c10::Symbol::fromQualString(function.name()));
  }
  if (!running.empty() && running.back().is_operator &&
      std::string_view(function.name()) == "aten::to") {
    const auto& around = running.back().autocast;
    Node* node = trace().insertPoint()->prev();
    if (node->kind() == aten::to &&
        ((around[0] && !done.autocast[0]) || (around[1] && !done.autocast[1]))) {
      node->i_(ops::of_autocast, ops::of_the_operator);
    }
  }
}

// The scopes that are open where a trace runs as it is.
thread_local std::map<int64_t, std::unique_ptr<Entered>> open;

Operation make_enter(const Node* node) {
  const Setting setting{c10::Device(node->s(ops::device_type)).type(), node->i(ops::enabled) != 0,
                        static_cast<c10::ScalarType>(node->i(ops::dtype))};
  const int64_t scope = node->i(ops::scope);
  return [=](Stack&) {
    open[scope] = std::make_unique<Entered>(std::vector<Setting>{setting}, std::nullopt);
  };
}

Operation make_exit(const Node* node) {
  const int64_t scope = node->i(ops::scope);
  return [=](Stack&) { open.erase(scope); };
}

const RegisterOperators operators({
    Operator(ops::enter, make_enter, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(ops::exit, make_exit, c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace

Recording::Recording()
    : handle_(at::addThreadLocalCallback(
          at::RecordFunctionCallback(begin, end).scopes({at::RecordScope::FUNCTION}))) {}

void Recording::stop() {
  if (!handle_) {
    return;
  }
  at::removeCallback(*handle_);
  handle_.reset();
  running.clear();
  while (!open.empty()) {  // what an error left
    open.erase(std::prev(open.end()));
  }
}

std::optional<int64_t> record_enter(const Around& scope, bool dtype_given) {
  return is_tracing() ? std::optional(enter(scope, dtype_given)) : std::nullopt;
}

void record_exit(int64_t scope) {
  if (is_tracing()) {
    marker(ops::exit, scope);
  }
}

}  // namespace jit_amp
