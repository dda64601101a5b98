#include "runtime/watch.h"

#include <ATen/ATen.h>
#include <ATen/SequenceNumber.h>
#include <ATen/autocast_mode.h>

#include <algorithm>
#include <exception>
#include <map>
#include <tuple>

#include "analysis/traits.h"
#include "core/ambient.h"
#include "core/types.h"

namespace jit_amp {

// An operator, looked up once.
struct KnownOperator {
  CalledOperator called;
  std::string name;
  bool is_shown = false;  // it gives a tensor, or writes to one
  bool writes = false;
};

namespace {

using at::Tensor;

bool gives_tensor(const c10::FunctionSchema& schema) {
  const auto& results = schema.returns();
  return std::any_of(results.begin(), results.end(),
                     [](const c10::Argument& each) { return is_of_tensors(each.type()); });
}

KnownOperator known_of(const c10::OperatorName& name) {
  KnownOperator made;
  made.name = c10::toString(name);
  if (const auto handle = c10::Dispatcher::singleton().findSchema(name)) {
    const auto& schema = handle->schema();
    made.called.schema = schema;
    made.called.run = [op = *handle](c10::Stack& stack) { op.callBoxed(stack); };
    made.called.can_run_again =
        !handle->hasTag(at::Tag::nondeterministic_seeded) &&
        traits_of(c10::Symbol::fromQualString(name.name)).memory != Memory::unwritten;
    made.writes = schema.is_mutable();
    made.is_shown = gives_tensor(schema) || made.writes;
  }
  return made;
}

// The autocasts that are on, and their dtypes, as one number.
uint64_t autocast_state() {
  uint64_t state = 0;
  for (const auto device : kDevices) {
    const bool enabled = at::autocast::is_autocast_enabled(device);
    const auto dtype =
        enabled ? static_cast<uint64_t>(at::autocast::get_autocast_dtype(device)) : 0;
    state = state * 131 + (enabled ? dtype + 1 : 0);
  }
  return state;
}

}  // namespace

struct Watch::State {
  std::function<int64_t()> place;
  ExplainOptions at;
  int runs = 0;
  std::unordered_map<c10::OperatorName, KnownOperator> operators{};
  // By place, operator, whether autograd runs it, and autocast's state.
  std::map<std::tuple<int64_t, const KnownOperator*, bool, uint64_t>, size_t> ids{};
  std::vector<OperatorRecord> operated{};
  std::vector<CalledOperator> called{};
  std::vector<std::pair<int64_t, bool>> places{};                // and whether autograd runs it
  std::vector<std::pair<size_t, const KnownOperator*>> order{};  // of the first run
  std::unique_ptr<Times> times{};
  std::unordered_map<const void*, Tensor> guarded{};  // by their memory
  std::unordered_map<const void*, Tensor> before{};   // of those that were written to

  const KnownOperator& known(const c10::OperatorName& name) {
    const auto found = operators.find(name);
    return found != operators.end() ? found->second
                                    : operators.emplace(name, known_of(name)).first->second;
  }

  void keep(const Tensor& t) {
    if (!t.defined() || !t.has_storage()) {
      return;
    }
    const void* memory = t.storage().unsafeGetStorageImpl();
    const auto found = guarded.find(memory);
    if (found != guarded.end() && !before.count(memory)) {
      const at::DisableRecordFunctionGuard quiet;
      const NoAutocastGuard off;
      const at::NoGradGuard no_grad;
      before.emplace(memory, found->second.clone());
    }
  }
};

class Watch::Looking : public Session {
 public:
  Looking(State& state, bool looks)
      : Session(&state.operated, &state.called, looks, state.at), state_(state) {}

  void enter(const at::RecordFunction& function) override {
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      nodes_.push_back(function.seqNr());
      return;
    }
    const auto name = function.operator_name();
    const KnownOperator* known = name ? &state_.known(*name) : nullptr;
    if (known && known->writes && looks()) {
      keep_what_is_written(*known, function);
    }
    if (known && depth_ == 0 && known->is_shown) {
      begin_outermost(*known, function);
    }
    depth_ += known ? 1 : 0;
    is_operator_.push_back(known != nullptr);
    Session::enter(function);
  }

  void leave(const at::RecordFunction& function) override {
    if (function.scope() == at::RecordScope::BACKWARD_FUNCTION) {
      if (!nodes_.empty()) {
        nodes_.pop_back();
      }
      return;
    }
    Session::leave(function);
    if (is_operator_.empty()) {
      return;
    }
    depth_ -= is_operator_.back() ? 1 : 0;
    is_operator_.pop_back();
    if (depth_ == 0 && open_) {
      if (std::uncaught_exceptions() > exceptions_) {
        open_.reset();
        fail();
      } else {
        end_outermost(function);
      }
    }
  }

  std::exception_ptr error;  // of `place`
  bool diverged = false;
  size_t done() const { return next_; }

 private:
  void keep_what_is_written(const KnownOperator& known, const at::RecordFunction& function) {
    const auto& arguments = known.called.schema->arguments();
    const auto inputs = function.inputs();
    for (size_t i = 0; i < arguments.size() && i < inputs.size(); ++i) {
      if (arguments[i].alias_info() && arguments[i].alias_info()->isWrite()) {
        for_tensors(inputs[i], [&](const Tensor& t) { state_.keep(t); });
      }
    }
  }

  void begin_outermost(const KnownOperator& known, const at::RecordFunction& function) {
    exceptions_ = std::uncaught_exceptions();
    if (!looks()) {
      const auto& order = state_.order;
      diverged |= next_ >= order.size() || order[next_].second != &known;
      if (!diverged) {
        open_ = order[next_++].first;
        begin(*open_, {});
      }
      return;
    }
    if (error) {
      return;
    }
    const auto id = number(known);
    if (!id) {
      return;
    }
    state_.order.emplace_back(*id, &known);
    open_ = id;
    first_node_ = at::sequence_number::peek();
    const auto inputs = function.inputs();
    begin(*id, std::vector<c10::IValue>(inputs.begin(), inputs.end()));
  }

  void end_outermost(const at::RecordFunction& function) {
    const size_t id = *open_;
    open_.reset();
    if (!looks()) {
      end(id, {});
      return;
    }
    const auto last_node = at::sequence_number::peek();
    if (nodes_.empty() && last_node > first_node_) {
      derivatives_.emplace_back(first_node_, last_node, state_.places[id].first);
    }
    try {
      end(id, function.outputs());
    } catch (const std::exception&) {  // of tensors that cannot be looked into
    }
  }

  // The operator's number at this place; none for what does not count.
  std::optional<size_t> number(const KnownOperator& known) {
    int64_t place = 0;
    try {
      place = state_.place();
    } catch (...) {
      error = std::current_exception();
      return std::nullopt;
    }
    if (place < 0) {
      return std::nullopt;
    }
    if (!nodes_.empty()) {
      place = place_of_derivative(nodes_.back()).value_or(place);
    }
    const bool is_backward = !nodes_.empty();
    const auto [at, is_new] = state_.ids.try_emplace({place, &known, is_backward, autocast_state()},
                                                     state_.operated.size());
    if (is_new) {
      OperatorRecord made;
      made.name = known.name;
      note_state(made, known.called, /*also_off=*/false);
      state_.operated.push_back(std::move(made));
      state_.called.push_back(known.called);
      state_.places.emplace_back(place, is_backward);
    }
    return at->second;
  }

  // The place of the operator that has made a node of autograd's, by the node's number.
  std::optional<int64_t> place_of_derivative(int64_t node) const {
    auto after = std::upper_bound(
        derivatives_.begin(), derivatives_.end(), static_cast<uint64_t>(node),
        [](uint64_t value, const auto& each) { return value < std::get<0>(each); });
    if (node < 0 || after == derivatives_.begin()) {
      return std::nullopt;
    }
    const auto& [first, last, place] = *std::prev(after);
    return static_cast<uint64_t>(node) < last ? std::optional(place) : std::nullopt;
  }

  State& state_;
  size_t depth_ = 0;
  std::vector<bool> is_operator_;
  std::optional<size_t> open_;  // the outermost operator that runs
  int exceptions_ = 0;          // that were on their way when it began
  size_t next_ = 0;             // of the order of the first run
  std::vector<int64_t> nodes_;  // of autograd's that run
  uint64_t first_node_ = 0;
  std::vector<std::tuple<uint64_t, uint64_t, int64_t>> derivatives_;  // numbers of nodes, place
};

Watch::Watch(std::function<int64_t()> place, ExplainOptions at)
    : state_(std::make_unique<State>(State{std::move(place), at})) {}
Watch::~Watch() = default;

void Watch::start() {
  run_ = std::make_unique<Looking>(*state_, state_->runs == 0);
  seeing_ = std::make_unique<SessionGuard>(*run_, /*operators_too=*/true);
}

void Watch::stop(bool failed) {
  seeing_.reset();
  const auto run = std::move(run_);
  if (!run) {
    return;
  }
  const int number = state_->runs++;
  if (run->error && !failed) {
    std::rethrow_exception(run->error);
  }
  if (number > 1 && !failed && !run->diverged && run->done() == state_->order.size()) {
    if (!state_->times) {
      state_->times = std::make_unique<Times>(state_->operated.size());
    }
    state_->times->add(*run);
  }
}

void Watch::note_gradients(const std::vector<Tensor>& outputs) {
  if (run_->error) {  // no operator was seen since
    std::rethrow_exception(run_->error);
  }
  const at::DisableRecordFunctionGuard quiet;
  run_->note_gradients(outputs);
}

std::optional<Failed> Watch::failed() { return run_ ? run_->failed() : std::nullopt; }

std::optional<size_t> Watch::maker_of(const Tensor& t) const {
  return run_ ? run_->maker_of(t) : std::nullopt;
}

void Watch::protect(const std::vector<Tensor>& tensors) {
  for (const Tensor& t : tensors) {
    if (t.defined() && t.has_storage()) {
      state_->guarded.emplace(t.storage().unsafeGetStorageImpl(), t);
    }
  }
}

void Watch::restore() {
  const NoAutocastGuard off;
  const at::NoGradGuard no_grad;
  for (const auto& [memory, values] : state_->before) {
    state_->guarded.at(memory).copy_(values);
  }
}

std::vector<Watch::Seen> Watch::seen() {
  if (state_->times) {
    state_->times->put_into(state_->operated);
  }
  std::vector<Seen> all;
  for (size_t id = 0; id < state_->operated.size(); ++id) {
    all.push_back({state_->operated[id], state_->places[id].first, state_->places[id].second});
  }
  return all;
}

}  // namespace jit_amp
