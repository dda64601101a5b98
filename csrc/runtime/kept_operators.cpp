#include "runtime/kept_operators.h"

#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/types.h"

namespace jit_amp {
namespace {

using Names = std::shared_ptr<const std::unordered_set<std::string>>;

// PyTorch has this key for tests of its own in C++ alone (c10/core/DispatchKey.h). No other that is
// free is above the one at which modes of __torch_dispatch__ take the thread's state: with one of
// those on, autocast would be on again within the operator.
constexpr auto kKey = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local std::vector<Names> entered;
thread_local const c10::OperatorHandle* kept_call = nullptr;

class RunningGuard {
 public:
  explicit RunningGuard(const c10::OperatorHandle& op) : before_(std::exchange(kept_call, &op)) {}
  ~RunningGuard() { kept_call = before_; }
  RunningGuard(const RunningGuard&) = delete;
  RunningGuard& operator=(const RunningGuard&) = delete;

 private:
  const c10::OperatorHandle* before_;
};

at::Tensor widened(const at::Tensor& tensor) {
  const bool is_reduced = tensor.defined() && (tensor.scalar_type() == at::kHalf ||
                                               tensor.scalar_type() == at::kBFloat16);
  return is_reduced ? tensor.to(at::kFloat) : tensor;
}

c10::IValue widened(const c10::IValue& value) {
  if (value.isTensor()) {
    return widened(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<at::Tensor> tensors;
    for (const at::Tensor& each : value.toTensorVector()) {
      tensors.push_back(widened(each));
    }
    return tensors;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<at::Tensor>> tensors;
    for (const std::optional<at::Tensor>& each : value.toOptionalTensorVector()) {
      tensors.push_back(each ? std::optional(widened(*each)) : std::nullopt);
    }
    return tensors;
  }
  return value;
}

bool stays(const c10::OperatorHandle& op) {
  const std::string& name = op.schema().name();
  return std::any_of(entered.begin(), entered.end(),
                     [&](const Names& names) { return names->count(name) != 0; }) &&
         gives_new_tensors(op.schema());
}

void run(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  keys = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kKey);
  if (kept_call) {
    op.redispatchBoxed(keys, stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard inside(kKey);
  const RunningGuard now(op);
  if (!stays(op)) {
    op.redispatchBoxed(keys, stack);
    return;
  }
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
  const auto given = static_cast<std::ptrdiff_t>(op.schema().arguments().size());
  std::transform(stack->end() - given, stack->end(), stack->end() - given,
                 [](const c10::IValue& value) { return widened(value); });
  op.redispatchBoxed(keys - c10::autocast_dispatch_keyset, stack);
}

// Asked for by nobody, it is not there: the key has one fallback in a process.
void register_once() {
  static auto& library = *new torch::Library(torch::Library::IMPL, "_", kKey, __FILE__, __LINE__);
  static const bool is_done = [] {
    library.fallback(torch::CppFunction::makeFromBoxedFunction<&run>());
    return true;
  }();
  (void)is_done;
}

}  // namespace

KeptOperators::KeptOperators(const std::vector<std::string>& names)
    : names_(std::make_shared<std::unordered_set<std::string>>(names.begin(), names.end())) {
  register_once();
}

void KeptOperators::enter() const {
  entered.push_back(names_);
  c10::impl::tls_set_dispatch_key_included(kKey, true);
}

void KeptOperators::exit() const {
  entered.pop_back();
  c10::impl::tls_set_dispatch_key_included(kKey, !entered.empty());
}

bool KeptOperators::is_entered() const {
  return std::find(entered.begin(), entered.end(), names_) != entered.end();
}

std::string running_operator() { return kept_call ? kept_call->schema().name() : ""; }

}  // namespace jit_amp
