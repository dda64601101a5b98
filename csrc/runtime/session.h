// session: what is seen of operators while they run under autocast.
//
// A Session looks at one run of a program: whoever runs it says when an operator begins and ends,
// with its operands and results (explain.h for a graph, watch.h for Python). A cast
// counts as autocast's if it runs inside an operator whose autocast kernel has switched autocast
// off (as in record.h). So the dtypes and the casts that are told are not predictions, whatever the
// operator is.
//
// With numerics, each operator runs once more in float64, on the operands that it had (the error
// that it introduces) and on those that a program all in float64 would have had (the error that has
// come about by then). Operands are recognised by their identity: what is written through a view is
// taken as exact again. With gradients, it notes where the gradients of results arrive
// (gradients.h).
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/edge.h>

#include <chrono>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "analysis/scopes.h"
#include "core/devices.h"
#include "core/places.h"
#include "runtime/gradients.h"

namespace jit_amp {

// Casts of one kind that an operator's autocast kernel made.
struct Cast {
  c10::ScalarType from;
  c10::ScalarType to;
  int64_t count = 0;
  int64_t bytes = 0;            // read and written
  int64_t bytes_of_leaves = 0;  // of these, those of leaves that require grad: weights
};

// What an operator's results are like beside the same in float64.
struct Numerics {
  double introduced = 0;  // largest difference, relative to the largest entry
  double total = 0;
  double largest = 0;  // entry
  int64_t elements = 0;
  int64_t nans = 0;
  int64_t infinities = 0;
  int64_t overflows = 0;   // infinite here, and finite in float64
  int64_t underflows = 0;  // zero here, and not in float64
  int64_t subnormals = 0;
};

// An operator of the program.
struct OperatorRecord {
  std::string name;          // with its overload
  std::vector<Place> stack;  // from the outermost call to the operator's own line
  std::string module;        // the path of the module whose code it is, as far as it is known
  bool is_call = false;      // of Python, or of another function
  bool is_dynamic = false;   // a scope's device is known at run time: the state is what is seen
  std::map<std::string, DeviceState> state;   // by device; those that scopes speak of
  std::map<std::string, Place> scope;         // by device: the `with` that made the state
  std::map<std::string, std::string> policy;  // by device
  // What was seen, in the order of the operands and results that are tensors.
  int64_t calls = 0;
  double seconds = 0;
  double cast_seconds = 0;  // of these, those of autocast's casts
  // none: several dtypes; Undefined: a Python number, which PyTorch has as a tensor too
  std::vector<std::optional<c10::ScalarType>> operands;
  std::vector<std::optional<c10::ScalarType>> results;
  std::vector<std::string> devices;  // of operands and results
  std::vector<Cast> casts;
  std::vector<std::vector<int64_t>> taken;    // shapes of the operands, in the first call
  std::vector<std::optional<size_t>> makers;  // the operators that gave the operands then
  std::vector<std::vector<int64_t>> shapes;   // of the results
  std::optional<Numerics> numerics;
  std::optional<Gradient> gradient;  // of all results together
};

// An argument of an operator that raised, which is not what the operator's schema gives by itself.
struct FailedOperand {
  std::string name;  // in the schema, with its index where it is an element of a list
  c10::IValue value;
  size_t argument;                // its number
  std::optional<size_t> element;  // its index
  // Of a tensor: the operator that gave it last; what else it is, in words; and where that is.
  std::optional<size_t> maker{};
  std::string origin{};
  std::optional<Place> place{};
};

// An operator that raised.
struct Failed {
  size_t id;
  std::vector<FailedOperand> operands;
};

// What is looked at besides dtypes, casts and time.
struct ExplainOptions {
  bool numerics = false;
  bool gradients = false;
};

// The operator of an OperatorRecord, to run it again; no schema: a call of code that is not known.
struct CalledOperator {
  std::optional<c10::FunctionSchema> schema{};
  std::function<void(c10::Stack&)> run{};
  bool can_run_again = false;  // beside itself: its results are no matter of chance
};

// The state of each device whose autocast is on, with the policy there, and whether it is for CPU
// and CUDA also where it is off.
void note_state(OperatorRecord& at, const CalledOperator& called, bool also_off);

// Calls `look` with each tensor in a value.
void for_tensors(const c10::IValue& value, const std::function<void(const at::Tensor&)>& look);

// One run of a program, in one thread. `looks`: more is seen than the time.
class Session {
 public:
  Session(std::vector<OperatorRecord>* operators, const std::vector<CalledOperator>* called,
          bool looks, ExplainOptions at);
  virtual ~Session() = default;

  void begin(size_t id, std::vector<c10::IValue> inputs);
  void end(size_t id, const std::vector<c10::IValue>& results);
  // The operator that has begun last has raised.
  void fail();
  // The last that has; also one that has begun and not ended.
  const std::optional<Failed>& failed();
  // The operator that gave a tensor last, if one did.
  std::optional<size_t> maker_of(const at::Tensor& t) const;
  // The gradients of each operator's results, all its calls together, where `outputs` are what the
  // program gave. Throws std::runtime_error: none of them requires grad.
  void note_gradients(const std::vector<at::Tensor>& outputs);

  // Called for each operator that PyTorch's dispatcher runs meanwhile, those inside others too.
  virtual void enter(const at::RecordFunction& function);
  virtual void leave(const at::RecordFunction& function);

  const std::vector<double>& seconds() const { return seconds_; }
  const std::vector<double>& cast_seconds() const { return cast_seconds_; }
  bool looks() const { return looks_; }

 protected:
  using Clock = std::chrono::steady_clock;
  // What the dispatcher runs: the outermost first.
  struct Running {
    PerDevice autocasts;
    bool is_cast;
    Clock::time_point start;
  };
  std::vector<Running> running_;

 private:
  at::Tensor shadow_of(const at::Tensor& t);
  void forget_written(const CalledOperator& called);
  void compare(OperatorRecord& at, const CalledOperator& called,
               const std::vector<c10::IValue>& results);
  void note_cast(const at::Tensor& t, c10::ScalarType to);

  std::vector<OperatorRecord>* operators_;
  const std::vector<CalledOperator>* called_;
  bool looks_;
  ExplainOptions at_;
  size_t current_ = 0;
  bool is_inside_ = false;
  bool compares_ = false;  // the operator that runs
  Clock::time_point start_{};
  std::vector<c10::IValue> operands_, wide_, shadows_;
  std::vector<double> seconds_, cast_seconds_;
  std::optional<Failed> failed_;
  // By a tensor's address, which may be used again.
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;
  std::unordered_map<c10::TensorImpl*, std::pair<WeakTensor, size_t>> makers_;
  // What a program all in float64 would have had, and the tensor that it would have had it for.
  std::unordered_map<c10::TensorImpl*, std::pair<at::Tensor, at::Tensor>> exact_;
  // Where the gradients of results arrive, and the operators that they are results of.
  std::vector<torch::autograd::Edge> edges_;
  std::vector<size_t> owners_;
};

// The medians of what several runs took.
class Times {
 public:
  explicit Times(size_t operators) : all_(operators) {}
  void add(const Session& run);
  void put_into(std::vector<OperatorRecord>& operators);

 private:
  std::vector<std::vector<std::pair<double, double>>> all_;  // seconds, and those of casts
};

// Has a session see what this thread runs. Sessions nest: a program may explain another.
class SessionGuard {
 public:
  explicit SessionGuard(Session& session, bool operators_too = false);
  ~SessionGuard();
  SessionGuard(const SessionGuard&) = delete;
  SessionGuard& operator=(const SessionGuard&) = delete;

  // The session of this thread.
  static Session* session();

 private:
  void add();
  void remove();
  Session& session_;
  SessionGuard* outer_;
  bool operators_too_;
  std::optional<at::CallbackHandle> handle_;
};

}  // namespace jit_amp
