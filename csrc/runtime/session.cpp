#include "runtime/session.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <unordered_set>

#include "analysis/policy.h"
#include "core/ambient.h"

namespace jit_amp {
namespace {

using at::Tensor;
using c10::Stack;
using Dtypes = std::vector<std::optional<c10::ScalarType>>;

template <typename F>
c10::IValue with_tensors(const c10::IValue& value, const F& change) {
  if (value.isTensor()) {
    return change(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& each : value.toTensorVector()) {
      list.push_back(change(each));
    }
    return list;
  }
  return value;
}

bool is_dense(const Tensor& t) {
  return !t.defined() || (t.layout() == at::kStrided && !t.is_nested());
}

bool are_dense(const std::vector<c10::IValue>& values) {
  bool dense = true;
  for (const c10::IValue& value : values) {
    for_tensors(value, [&](const Tensor& t) { dense &= is_dense(t); });
  }
  return dense;
}

std::vector<int64_t> sizes_of(const Tensor& t) {
  return t.defined() && !t.is_nested() ? t.sizes().vec() : std::vector<int64_t>();
}

Tensor in_float64(const Tensor& t) {
  return t.defined() ? t.is_floating_point() ? t.to(at::kDouble, false, /*copy=*/true) : t.clone()
                     : t;
}

bool is_wrapped_number(const Tensor& t) {
  return t.defined() && t.unsafeGetTensorImpl()->is_wrapped_number();
}

std::optional<c10::ScalarType> dtype_of(const Tensor& t) {
  if (is_wrapped_number(t)) {
    return c10::ScalarType::Undefined;
  }
  return t.defined() ? std::optional(t.scalar_type()) : std::nullopt;
}

void merge(Dtypes& known, const std::vector<c10::IValue>& values, bool is_first) {
  size_t at = 0;
  for (const c10::IValue& value : values) {
    for_tensors(value, [&](const Tensor& t) {
      const auto dtype = dtype_of(t);
      if (is_first) {
        known.push_back(dtype);
      } else if (at < known.size() && known[at] != dtype) {
        known[at] = std::nullopt;
      }
      ++at;
    });
  }
}

void note_device(OperatorRecord& at, const Tensor& t) {
  if (!t.defined() || is_wrapped_number(t)) {
    return;
  }
  const std::string name = c10::DeviceTypeName(t.device().type(), /*lower_case=*/true);
  if (std::find(at.devices.begin(), at.devices.end(), name) == at.devices.end()) {
    at.devices.push_back(name);
  }
}

// The operator's results on other operands; none where it does not take them.
std::optional<std::vector<c10::IValue>> rerun(const CalledOperator& called,
                                              std::vector<c10::IValue> stack) {
  const auto& formals = called.schema->arguments();
  for (size_t i = 0; i < stack.size() && i < formals.size(); ++i) {
    const bool is_dtype = formals[i].name() == "dtype" && stack[i].isInt();
    if (is_dtype && c10::isFloatingType(static_cast<c10::ScalarType>(stack[i].toInt()))) {
      stack[i] = static_cast<int64_t>(at::kDouble);
    }
  }
  const NoAutocastGuard off;
  const at::NoGradGuard no_grad;
  try {
    called.run(stack);
    return are_dense(stack) ? std::optional(std::move(stack)) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

// The largest difference relative to the largest entry; infinite where one of them is not finite
// and the reference is.
double off(const Tensor& x, const Tensor& reference) {
  const Tensor known = reference.isfinite();
  if (known.logical_and(x.isfinite().logical_not()).any().item<bool>()) {
    return std::numeric_limits<double>::infinity();
  }
  const Tensor finite = x.isfinite().logical_and(known);
  const Tensor zero = at::zeros({}, x.options());
  const double largest = at::where(finite, reference, zero).abs().max().item<double>();
  const double apart = at::where(finite, x - reference, zero).abs().max().item<double>();
  return largest > 0 ? apart / largest : apart;
}

void measure(Numerics& found, const Tensor& actual, const Tensor& introduced, const Tensor& total) {
  const auto count = [](const Tensor& mask) { return mask.sum().item<int64_t>(); };
  const Tensor x = actual.to(at::kDouble), r = introduced.to(at::kDouble);
  const double least = actual.scalar_type() == at::kHalf ? 6.103515625e-05 : 1.1754943508222875e-38;
  const Tensor finite = x.isfinite();
  found.introduced = std::max(found.introduced, off(x, r));
  found.total = std::max(found.total, off(x, total.to(at::kDouble)));
  found.largest = std::max(
      found.largest, at::where(finite, x, at::zeros({}, x.options())).abs().max().item<double>());
  found.elements += x.numel();
  found.nans += count(x.isnan());
  found.infinities += count(x.isinf());
  found.overflows += count(x.isinf().logical_and(r.isfinite()));
  found.underflows += count(x.eq(0).logical_and(r.ne(0)));
  found.subnormals += count(x.ne(0).logical_and(x.abs().lt(least)));
}

void add_up(Gradient& all, const Gradient& one) {
  all.largest = std::max(all.largest, one.largest);
  all.elements += one.elements;
  all.underflows += one.underflows;
  if (one.overflow_scale) {
    all.overflow_scale = std::min(*one.overflow_scale, all.overflow_scale.value_or(INFINITY));
  }
}

// The arguments of a call, and of lists of tensors each element.
std::vector<FailedOperand> failed_operands(const CalledOperator& called,
                                           const std::vector<c10::IValue>& values) {
  std::vector<FailedOperand> found;
  for (size_t i = 0; i < values.size(); ++i) {
    const bool is_named = called.schema && i < called.schema->arguments().size();
    const std::string name =
        is_named ? called.schema->arguments()[i].name() : "argument " + std::to_string(i);
    std::vector<Tensor> tensors;
    for_tensors(values[i], [&](const Tensor& t) { tensors.push_back(t); });
    if (is_named && tensors.empty() && called.schema->arguments()[i].default_value() == values[i]) {
      continue;
    }
    if (values[i].isTensor() || tensors.empty()) {
      found.push_back({name, values[i], i, std::nullopt});
      continue;
    }
    for (size_t k = 0; k < tensors.size(); ++k) {
      found.push_back({name + "[" + std::to_string(k) + "]", tensors[k], i, k});
    }
  }
  return found;
}

thread_local Session* current_session = nullptr;
thread_local SessionGuard* innermost = nullptr;

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (current_session) {
    current_session->enter(function);
  }
  return nullptr;
}

void on_end(const at::RecordFunction& function, at::ObserverContext*) {
  if (current_session) {
    current_session->leave(function);
  }
}

}  // namespace

void for_tensors(const c10::IValue& value, const std::function<void(const Tensor&)>& look) {
  if (value.isTensor()) {
    look(value.toTensor());
  } else if (value.isList()) {
    for (const c10::IValue& each : value.toListRef()) {
      for_tensors(each, look);
    }
  } else if (value.isTuple()) {
    for (const auto& each : value.toTupleRef().elements()) {
      for_tensors(each, look);
    }
  } else if (value.isGenericDict()) {
    for (const auto& entry : value.toGenericDict()) {
      for_tensors(entry.value(), look);
    }
  }
}

void note_state(OperatorRecord& at, const CalledOperator& called, bool also_off) {
  for (const auto device : kDevices) {
    const bool enabled = at::autocast::is_autocast_enabled(device);
    if (!enabled && !(also_off && (device == at::kCPU || device == at::kCUDA))) {
      continue;
    }
    const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
    DeviceState state;
    state.enabled = enabled;
    state.dtype = at::autocast::get_autocast_dtype(device);
    state.by_scope = true;
    at.state[name] = state;
    if (enabled) {
      at.policy[name] = name_of(called.schema ? policy_of(*called.schema, device) : Policy::opaque);
    }
  }
}

Session::Session(std::vector<OperatorRecord>* operators, const std::vector<CalledOperator>* called,
                 bool looks, ExplainOptions at)
    : operators_(operators),
      called_(called),
      looks_(looks),
      at_(looks ? at : ExplainOptions()),
      seconds_(operators->size()),
      cast_seconds_(operators->size()) {}

Tensor Session::shadow_of(const Tensor& t) {
  if (!t.defined()) {
    return t;
  }
  auto& [kept, shadow] = exact_[t.unsafeGetTensorImpl()];
  // Integers may be written by what is not run again: they are taken as they are.
  if (!kept.defined() || shadow.sizes() != t.sizes() || !t.is_floating_point()) {
    kept = t;
    shadow = in_float64(t);
  }
  return shadow;
}

void Session::begin(size_t id, std::vector<c10::IValue> inputs) {
  if (id >= seconds_.size()) {
    seconds_.resize(id + 1);
    cast_seconds_.resize(id + 1);
  }
  current_ = id;
  operands_ = std::move(inputs);
  const CalledOperator& called = (*called_)[id];
  if (looks_) {
    OperatorRecord& op = (*operators_)[id];
    if (op.is_dynamic && op.calls == 0) {
      note_state(op, called, /*also_off=*/true);
    }
    merge(op.operands, operands_, op.calls == 0);
    for (const auto& value : operands_) {
      for_tensors(value, [&](const Tensor& t) {
        note_device(op, t);
        if (op.calls == 0) {
          op.taken.push_back(sizes_of(t));
          op.makers.push_back(maker_of(t));
        }
      });
    }
  }
  compares_ = at_.numerics && called.can_run_again && are_dense(operands_);
  if (compares_) {
    const at::DisableRecordFunctionGuard quiet;
    const NoAutocastGuard off;
    const at::NoGradGuard no_grad;
    wide_.clear();
    shadows_.clear();
    for (const auto& value : operands_) {
      wide_.push_back(with_tensors(value, in_float64));
      shadows_.push_back(with_tensors(value, [&](const Tensor& t) { return shadow_of(t); }));
    }
  }
  is_inside_ = true;
  start_ = Clock::now();
}

void Session::end(size_t id, const std::vector<c10::IValue>& results) {
  const auto stop = Clock::now();
  is_inside_ = false;
  seconds_[id] += std::chrono::duration<double>(stop - start_).count();
  if (!looks_) {
    return;
  }
  OperatorRecord& op = (*operators_)[id];
  merge(op.results, results, op.calls == 0);
  for (const auto& value : results) {
    for_tensors(value, [&](const Tensor& t) {
      note_device(op, t);
      if (op.calls == 0) {
        op.shapes.push_back(sizes_of(t));
      }
      if (t.defined()) {
        makers_.insert_or_assign(t.unsafeGetTensorImpl(),
                                 std::pair(WeakTensor(t.getIntrusivePtr()), id));
      }
      if (at_.gradients && t.defined() && t.requires_grad()) {
        const auto edge = torch::autograd::impl::gradient_edge(t);
        if (edge.is_valid()) {  // not a view that was made where nothing is recorded
          edges_.push_back(edge);
          owners_.push_back(id);
        }
      }
    });
  }
  ++op.calls;
  if (compares_ && are_dense(results)) {
    compare(op, (*called_)[id], results);
  } else if (at_.numerics) {
    forget_written((*called_)[id]);
  }
  operands_.clear();
}

void Session::fail() {
  is_inside_ = false;
  if (looks_) {
    failed_ = {current_, failed_operands((*called_)[current_], operands_)};
    for (FailedOperand& operand : failed_->operands) {
      if (operand.value.isTensor()) {
        operand.maker = maker_of(operand.value.toTensor());
      }
    }
  }
  operands_.clear();
}

const std::optional<Failed>& Session::failed() {
  if (is_inside_) {
    fail();
  }
  return failed_;
}

std::optional<size_t> Session::maker_of(const Tensor& t) const {
  const auto found = makers_.find(t.unsafeGetTensorImpl());
  const bool is_itself = found != makers_.end() && !found->second.first.expired();
  return is_itself ? std::optional(found->second.second) : std::nullopt;
}

// What an operator has written that does not run again: it is taken as exact from here on.
void Session::forget_written(const CalledOperator& called) {
  if (called.schema && !called.schema->is_mutable()) {
    return;
  }
  std::unordered_set<const void*> memory;
  const auto storage = [](const Tensor& t) -> const void* {
    return t.defined() && is_dense(t) ? t.storage().unsafeGetStorageImpl() : nullptr;
  };
  for (const c10::IValue& value : operands_) {
    for_tensors(value, [&](const Tensor& t) { memory.insert(storage(t)); });
  }
  for (auto it = exact_.begin(); it != exact_.end();) {
    it = memory.count(storage(it->second.first)) ? exact_.erase(it) : std::next(it);
  }
}

void Session::compare(OperatorRecord& at, const CalledOperator& called,
                      const std::vector<c10::IValue>& results) {
  const at::DisableRecordFunctionGuard quiet;
  const auto exactly = rerun(called, wide_), throughout = rerun(called, shadows_);
  if (!exactly || !throughout || exactly->size() != results.size() ||
      throughout->size() != results.size()) {
    return;
  }
  const NoAutocastGuard off;
  const at::NoGradGuard no_grad;
  Numerics& found = at.numerics ? *at.numerics : at.numerics.emplace();
  for (size_t i = 0; i < results.size(); ++i) {
    std::vector<Tensor> a, b, c;
    for_tensors(results[i], [&](const Tensor& t) { a.push_back(t); });
    for_tensors((*exactly)[i], [&](const Tensor& t) { b.push_back(t); });
    for_tensors((*throughout)[i], [&](const Tensor& t) { c.push_back(t); });
    for (size_t k = 0; k < a.size() && k < b.size() && k < c.size(); ++k) {
      if (a[k].defined() && a[k].is_floating_point() && a[k].numel() &&
          a[k].sizes() == b[k].sizes() && a[k].sizes() == c[k].sizes()) {
        measure(found, a[k], b[k], c[k]);
        exact_[a[k].unsafeGetTensorImpl()] = {a[k], c[k].to(at::kDouble)};
      }
    }
  }
}

void Session::note_gradients(const std::vector<Tensor>& outputs) {
  const auto gradients = gradients_of(outputs, edges_);
  for (size_t i = 0; i < gradients.size(); ++i) {
    auto& all = (*operators_)[owners_[i]].gradient;
    if (gradients[i].elements && all) {
      add_up(*all, gradients[i]);
    } else if (gradients[i].elements) {
      all = gradients[i];
    }
  }
}

// Inside the operator: what its autocast kernels cast.
void Session::enter(const at::RecordFunction& function) {
  const PerDevice now = autocasts_on();
  const bool is_cast = is_inside_ && !running_.empty() &&
                       is_switched_off(running_.back().autocasts, now) &&
                       std::string_view(function.name()) == "aten::to";
  if (is_cast && looks_ && function.inputs().size() > 1 && function.inputs()[0].isTensor() &&
      function.inputs()[1].isInt()) {
    const Tensor& t = function.inputs()[0].toTensor();
    note_cast(t, static_cast<c10::ScalarType>(function.inputs()[1].toInt()));
  }
  running_.push_back({now, is_cast, is_cast ? Clock::now() : Clock::time_point()});
}

void Session::leave(const at::RecordFunction&) {
  if (running_.empty()) {
    return;
  }
  if (running_.back().is_cast) {
    const auto took = Clock::now() - running_.back().start;
    cast_seconds_[current_] += std::chrono::duration<double>(took).count();
  }
  running_.pop_back();
}

void Session::note_cast(const Tensor& t, c10::ScalarType to) {
  if (t.scalar_type() == to) {
    return;
  }
  auto& casts = (*operators_)[current_].casts;
  auto known = std::find_if(casts.begin(), casts.end(), [&](const Cast& each) {
    return each.from == t.scalar_type() && each.to == to;
  });
  if (known == casts.end()) {
    known = casts.insert(known, {t.scalar_type(), to});
  }
  const auto bytes = t.numel() * static_cast<int64_t>(t.element_size() + c10::elementSize(to));
  ++known->count;
  known->bytes += bytes;
  known->bytes_of_leaves += t.is_leaf() && t.requires_grad() ? bytes : 0;
}

void Times::add(const Session& run) {
  for (size_t id = 0; id < all_.size() && id < run.seconds().size(); ++id) {
    all_[id].emplace_back(run.seconds()[id], run.cast_seconds()[id]);
  }
}

void Times::put_into(std::vector<OperatorRecord>& operators) {
  for (size_t id = 0; id < all_.size(); ++id) {
    if (auto& of_runs = all_[id]; !of_runs.empty()) {
      const auto middle = of_runs.begin() + static_cast<std::ptrdiff_t>(of_runs.size() / 2);
      std::nth_element(of_runs.begin(), middle, of_runs.end());
      std::tie(operators[id].seconds, operators[id].cast_seconds) = *middle;
    }
  }
}

SessionGuard::SessionGuard(Session& session, bool operators_too)
    : session_(session), outer_(innermost), operators_too_(operators_too) {
  if (outer_) {
    outer_->remove();
  }
  innermost = this;
  current_session = &session_;
  add();
}

SessionGuard::~SessionGuard() {
  remove();
  innermost = outer_;
  current_session = outer_ ? &outer_->session_ : nullptr;
  if (outer_) {
    outer_->add();
  }
}

Session* SessionGuard::session() { return current_session; }

void SessionGuard::add() {
  auto callback = at::RecordFunctionCallback(on_begin, on_end).needsInputs(session_.looks());
  if (operators_too_) {
    callback.needsOutputs(session_.looks())
        .scopes({at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION});
  } else {
    callback.scopes({at::RecordScope::FUNCTION});
  }
  handle_ = at::addThreadLocalCallback(std::move(callback));
}

void SessionGuard::remove() {
  if (handle_) {
    at::removeCallback(*handle_);
    handle_.reset();
  }
}

}  // namespace jit_amp
