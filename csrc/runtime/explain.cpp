#include "runtime/explain.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/jit/ir/scope.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <chrono>
#include <unordered_map>
#include <unordered_set>

#include "analysis/policy.h"
#include "core/ambient.h"
#include "core/copies.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "passes/lowering/enter_scopes.h"
#include "pipelines/script.h"
#include "runtime/kernels.h"
#include "runtime/program.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using at::Tensor;
using Clock = std::chrono::steady_clock;

// What is known before anything runs.

Place place_of(const SourceRange& range, std::string function = "") {
  Place place;
  place.function = std::move(function);
  if (const auto at = range.file_line_col()) {
    std::tie(place.file, place.line, place.column) = *at;
  }
  return place;
}

// A node that somebody wrote, and that autocast might do something to.
bool is_operator(const Node* node) {
  if (is_call(node)) {
    return true;
  }
  const auto* schema = node->maybeSchema();
  const auto takes_tensor = [](const Value* value) {
    return value->type()->kind() == c10::TypeKind::TensorType ||
           value->type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
           value->type()->isSubtypeOf(*c10::ListType::ofTensors());
  };
  const auto any = [&](at::ArrayRef<const Value*> values) {
    return std::any_of(values.begin(), values.end(), takes_tensor);
  };
  return schema && !node->kind().is_prim() &&
         c10::Dispatcher::singleton().findOp(schema->operator_name()) && any(node->outputs());
}

std::string name_of(const Node* node) {
  const auto* schema = node->maybeSchema();
  if (node->kind() == prim::PythonOp) {
    return static_cast<const PythonOp*>(node)->name();
  }
  return schema ? c10::toString(schema->operator_name()) : node->kind().toQualString();
}

class Describer {
 public:
  explicit Describer(const Scopes& scopes) : scopes_(scopes) {
    for (const Boundary& boundary : scopes.boundaries) {
      boundaries_[boundary.node] = &boundary;
    }
  }

  void describe(Block* block) {
    for (Node* node : block->nodes()) {
      const auto boundary = boundaries_.find(node);
      if (boundary != boundaries_.end()) {
        boundary->second->enters ? open_.push_back(boundary->second) : open_.pop_back();
      } else if (scopes_.state.count(node) && is_operator(node)) {
        nodes.push_back(node);
        operators.push_back(described(node));
      }
      for (Block* inner : node->blocks()) {
        describe(inner);
      }
    }
  }

  std::vector<Node*> nodes;
  std::vector<Operated> operators;

 private:
  Operated described(const Node* node) {
    Operated made;
    made.name = name_of(node);
    made.is_call = is_call(node);
    std::string function;
    if (const auto callstack = node->callstack()) {
      for (const auto& [callee, range, module] : (*callstack)->vec()) {
        made.stack.push_back(place_of(range, function));
        function = callee ? callee->name() : "";
        if (module && module->instance_name() != "SELF") {
          made.module += (made.module.empty() ? "" : ".") + module->instance_name();
        }
      }
    }
    made.stack.push_back(place_of(node->sourceRange(), function));
    const State& state = *scopes_.state.at(node);
    made.is_dynamic = !state.dynamic.empty();
    for (const c10::DeviceType device : state.named()) {
      const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
      made.state[name] = state.at(device);
      const auto scope = std::find_if(open_.rbegin(), open_.rend(), [&](const Boundary* each) {
        return each->inside.count(device) != 0;
      });
      if (scope != open_.rend()) {
        const Node* enter = (*scope)->node;
        made.scope[name] = place_of(enter->input(0)->node()->sourceRange());
        if (!made.scope[name].line) {
          made.scope[name] = place_of(enter->sourceRange());
        }
      }
      if (state.active(device)) {
        made.policy[name] = jit_amp::name_of(policy_of(node, device));
      }
    }
    return made;
  }

  const Scopes& scopes_;
  std::unordered_map<const Node*, const Boundary*> boundaries_;
  std::vector<const Boundary*> open_;
};

// What is seen when it runs.

template <typename F>
void for_tensors(const c10::IValue& value, const F& look) {
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

Tensor widened(const Tensor& t) {
  return t.defined() ? t.is_floating_point() ? t.to(at::kDouble, false, /*copy=*/true) : t.clone()
                     : t;
}

using Dtypes = std::vector<std::optional<c10::ScalarType>>;

void merge(Dtypes& known, const std::vector<c10::IValue>& values, bool is_first) {
  size_t at = 0;
  for (const c10::IValue& value : values) {
    for_tensors(value, [&](const Tensor& t) {
      const auto dtype = t.defined() ? std::optional(t.scalar_type()) : std::nullopt;
      if (is_first) {
        known.push_back(dtype);
      } else if (at < known.size() && known[at] != dtype) {
        known[at] = std::nullopt;
      }
      ++at;
    });
  }
}

// All of one run.
struct Session {
  std::vector<Operated>* operators;
  const std::vector<Node*>* nodes;
  bool looks;  // beside the time
  Looks at;

  size_t current = 0;
  bool is_inside = false;
  bool compares = false;  // the operator that runs
  Clock::time_point start{};
  std::vector<c10::IValue> operands{}, wide{}, shadows{};
  std::vector<double> seconds{};
  std::vector<PerDevice> running{};
  // What a program all in float64 would have had, and the tensor that it would have had it for.
  std::unordered_map<c10::TensorImpl*, std::pair<Tensor, Tensor>> exact{};
  // Where the gradients of results arrive, and the operators that they are results of.
  std::vector<torch::autograd::Edge> edges{};
  std::vector<size_t> owners{};

  Tensor shadow_of(const Tensor& t) {
    if (!t.defined()) {
      return t;
    }
    auto& [kept, shadow] = exact[t.unsafeGetTensorImpl()];
    // Integers may be written by what is not run again: they are taken as they are.
    if (!kept.defined() || shadow.sizes() != t.sizes() || !t.is_floating_point()) {
      kept = t;
      shadow = widened(t);
    }
    return shadow;
  }

  void begin(size_t id, std::vector<c10::IValue> inputs) {
    current = id;
    operands = std::move(inputs);
    if (looks) {
      Operated& op = (*operators)[id];
      if (op.is_dynamic && op.calls == 0) {
        note_state(op, (*nodes)[id]);
      }
      merge(op.operands, operands, op.calls == 0);
      for (const auto& value : operands) {
        for_tensors(value, [&](const Tensor& t) {
          note_device(op, t);
          if (op.calls == 0) {
            op.taken.push_back(sizes_of(t));
          }
        });
      }
    }
    compares = at.numerics && can_run_again((*nodes)[id]) && are_dense(operands);
    if (compares) {
      const Suspended off;
      const at::NoGradGuard no_grad;
      wide.clear();
      shadows.clear();
      for (const auto& value : operands) {
        wide.push_back(with_tensors(value, widened));
        shadows.push_back(with_tensors(value, [&](const Tensor& t) { return shadow_of(t); }));
      }
    }
    is_inside = true;
    start = Clock::now();
  }

  void end(size_t id, const std::vector<c10::IValue>& results) {
    const auto stop = Clock::now();
    is_inside = false;
    seconds[id] += std::chrono::duration<double>(stop - start).count();
    if (!looks) {
      return;
    }
    Operated& op = (*operators)[id];
    merge(op.results, results, op.calls == 0);
    for (const auto& value : results) {
      for_tensors(value, [&](const Tensor& t) {
        note_device(op, t);
        if (op.calls == 0) {
          op.shapes.push_back(sizes_of(t));
        }
        if (at.gradients && t.defined() && t.requires_grad()) {
          edges.push_back(torch::autograd::impl::gradient_edge(t));
          owners.push_back(id);
        }
      });
    }
    ++op.calls;
    if (compares && are_dense(results)) {
      compare(op, (*nodes)[id], results);
    } else if (at.numerics) {
      forget_written((*nodes)[id]);
    }
    operands.clear();
  }

  // Not what is random, calls code that is not in the graph, or gives whatever was in memory.
  static bool can_run_again(const Node* node) {
    return !node->isNondeterministic() && !is_call(node) &&
           std::string_view(node->kind().toUnqualString()).find("empty") == std::string_view::npos;
  }

  // What an operator has written that does not run again: it is taken as exact from here on.
  void forget_written(const Node* node) {
    const auto* schema = node->maybeSchema();
    if (schema && !schema->is_mutable() && !is_call(node)) {
      return;
    }
    std::unordered_set<const void*> memory;
    const auto storage = [](const Tensor& t) -> const void* {
      return t.defined() && is_dense(t) ? t.storage().unsafeGetStorageImpl() : nullptr;
    };
    for (const c10::IValue& value : operands) {
      for_tensors(value, [&](const Tensor& t) { memory.insert(storage(t)); });
    }
    for (auto it = exact.begin(); it != exact.end();) {
      it = memory.count(storage(it->second.first)) ? exact.erase(it) : std::next(it);
    }
  }

  static void note_state(Operated& at, const Node* node) {
    for (const auto device : {at::kCPU, at::kCUDA}) {
      const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
      DeviceState state;
      state.enabled = at::autocast::is_autocast_enabled(device);
      state.dtype = at::autocast::get_autocast_dtype(device);
      state.by_scope = true;
      at.state[name] = state;
      if (state.enabled) {
        at.policy[name] = jit_amp::name_of(policy_of(node, device));
      }
    }
  }

  static void note_device(Operated& at, const Tensor& t) {
    const std::string name = t.defined() ? c10::DeviceTypeName(t.device().type(), true) : "";
    if (t.defined() && std::find(at.devices.begin(), at.devices.end(), name) == at.devices.end()) {
      at.devices.push_back(name);
    }
  }

  // The operator's results on other operands; none where it does not take them.
  static std::optional<std::vector<c10::IValue>> rerun(const Node* node,
                                                       std::vector<c10::IValue> stack) {
    const auto& formals = node->schema().arguments();
    for (size_t i = 0; i < stack.size() && i < formals.size(); ++i) {
      const bool is_dtype = formals[i].name() == "dtype" && stack[i].isInt();
      if (is_dtype && c10::isFloatingType(static_cast<c10::ScalarType>(stack[i].toInt()))) {
        stack[i] = static_cast<int64_t>(at::kDouble);
      }
    }
    const Suspended off;
    const at::NoGradGuard no_grad;
    try {
      node->getOperation()(stack);
      return are_dense(stack) ? std::optional(std::move(stack)) : std::nullopt;
    } catch (const std::exception&) {
      return std::nullopt;
    }
  }

  void compare(Operated& at, const Node* node, const std::vector<c10::IValue>& results) {
    const auto exactly = rerun(node, wide), throughout = rerun(node, shadows);
    if (!exactly || !throughout || exactly->size() != results.size() ||
        throughout->size() != results.size()) {
      return;
    }
    const Suspended off;
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
          exact[a[k].unsafeGetTensorImpl()] = {a[k], c[k].to(at::kDouble)};
        }
      }
    }
  }

  static double off(const Tensor& x, const Tensor& reference) {
    const Tensor finite = x.isfinite().logical_and(reference.isfinite());
    const Tensor zero = at::zeros({}, x.options());
    const double largest = at::where(finite, reference, zero).abs().max().item<double>();
    const double apart = at::where(finite, x - reference, zero).abs().max().item<double>();
    return largest > 0 ? apart / largest : apart;
  }

  static void measure(Numerics& found, const Tensor& actual, const Tensor& introduced,
                      const Tensor& total) {
    const auto count = [](const Tensor& mask) { return mask.sum().item<int64_t>(); };
    const Tensor x = actual.to(at::kDouble), r = introduced.to(at::kDouble);
    const double least =
        actual.scalar_type() == at::kHalf ? 6.103515625e-05 : 1.1754943508222875e-38;
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

  // Inside the operator: what its autocast kernels cast.
  void enter(const at::RecordFunction& function) {
    const PerDevice now = autocasts_on();
    const std::string_view name = function.name();
    if (is_inside && !running.empty() && name == "aten::to" &&
        is_switched_off(running.back(), now) && function.inputs().size() > 1 &&
        function.inputs()[0].isTensor() && function.inputs()[1].isInt()) {
      const Tensor& t = function.inputs()[0].toTensor();
      note_cast(t, static_cast<c10::ScalarType>(function.inputs()[1].toInt()));
    }
    running.push_back(now);
  }

  void note_cast(const Tensor& t, c10::ScalarType to) {
    if (t.scalar_type() == to) {
      return;
    }
    auto& casts = (*operators)[current].casts;
    auto known = std::find_if(casts.begin(), casts.end(), [&](const Cast& each) {
      return each.from == t.scalar_type() && each.to == to;
    });
    if (known == casts.end()) {
      known = casts.insert(known, {t.scalar_type(), to});
    }
    ++known->count;
    known->bytes += t.numel() * static_cast<int64_t>(t.element_size() + c10::elementSize(to));
  }
};
thread_local Session* session = nullptr;

std::vector<c10::IValue> taken(Stack& stack, size_t count) {
  std::vector<c10::IValue> values(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  drop(stack, count);
  return values;
}

Operation make_begin(const Node* node) {
  const auto id = static_cast<size_t>(node->i(attr::value));
  const size_t inputs = node->inputs().size();
  return [=](Stack& stack) { session->begin(id, taken(stack, inputs)); };
}

Operation make_end(const Node* node) {
  const auto id = static_cast<size_t>(node->i(attr::value));
  const size_t inputs = node->inputs().size();
  return [=](Stack& stack) { session->end(id, taken(stack, inputs)); };
}

const RegisterOperators registered({
    Operator(ops::explain_begin, make_begin, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(ops::explain_end, make_end, c10::AliasAnalysisKind::CONSERVATIVE),
});

void insert_observers(const std::vector<Node*>& nodes) {
  for (size_t id = 0; id < nodes.size(); ++id) {
    Node* node = nodes[id];
    Graph* graph = node->owningGraph();
    graph->create(ops::explain_begin, node->inputs(), 0)
        ->insertBefore(node)
        ->i_(attr::value, static_cast<int64_t>(id));
    graph->create(ops::explain_end, node->outputs(), 0)
        ->insertAfter(node)
        ->i_(attr::value, static_cast<int64_t>(id));
  }
}

std::unique_ptr<at::ObserverContext> on_begin(const at::RecordFunction& function) {
  if (session) {
    session->enter(function);
  }
  return nullptr;
}

void on_end(const at::RecordFunction&, at::ObserverContext*) {
  if (session && !session->running.empty()) {
    session->running.pop_back();
  }
}

// Returns what the program returned.
Stack run(const Code& code, const ObjectPtr& self, const Stack& arguments, Session& with) {
  Stack stack;
  if (self) {
    stack.emplace_back(self);
  }
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  const size_t inputs = stack.size();
  std::optional<at::CallbackHandle> handle;
  if (with.looks && !(session && session->looks)) {
    handle = at::addThreadLocalCallback(at::RecordFunctionCallback(on_begin, on_end)
                                            .needsInputs(true)
                                            .scopes({at::RecordScope::FUNCTION}));
  }
  struct Leave {
    Session* outer;  // of a program that calls Python that explains another
    std::optional<at::CallbackHandle> handle;
    ~Leave() {
      session = outer;
      if (handle) {
        at::removeCallback(*handle);
      }
    }
  } const leave{session, handle};
  session = &with;
  const Unwinding scopes;
  run_here(code, stack, inputs);
  return stack;
}

// The gradients of each operator's results, all together.
void note_gradients(std::vector<Operated>& operators, const Session& with, const Stack& results) {
  std::vector<Tensor> outputs;
  for (const c10::IValue& result : results) {
    for_tensors(result, [&](const Tensor& t) { outputs.push_back(t); });
  }
  const auto gradients = gradients_of(outputs, with.edges);
  for (size_t i = 0; i < gradients.size(); ++i) {
    const Gradient& one = gradients[i];
    if (!one.elements) {
      continue;
    }
    auto& all = operators[with.owners[i]].gradient;
    if (!all) {
      all = one;
      continue;
    }
    all->largest = std::max(all->largest, one.largest);
    all->elements += one.elements;
    all->underflows += one.underflows;
    if (one.overflow_scale) {
      all->overflow_scale = std::min(*one.overflow_scale, all->overflow_scale.value_or(INFINITY));
    }
  }
}

// The module that a run works on: what it writes stays there. Parameters are shared where nothing
// in the graph writes.
ObjectPtr copy_of(const ObjectPtr& module, Copies& copies, bool writes) {
  if (!module) {
    return nullptr;
  }
  if (!writes) {
    for (const Tensor& parameter : Module(module).parameters()) {
      copies.share(parameter);
    }
  }
  return copies.of(module).toObject();
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
  return values[values.size() / 2];
}

}  // namespace

Explained explain(GraphFunction& function, const ObjectPtr& module, const std::vector<Stack>& runs,
                  Looks at) {
  Explained explained;
  std::vector<Node*> nodes;
  Context context;
  std::optional<Code> code;
  Copies copies;
  {
    const Turn turn;
    refusing_unfit_graphs([&] {
      context.function = &function;
      context.self = module;
      context.entry = entry_state({at::autocast::is_autocast_enabled(at::kCPU),
                                   at::autocast::is_autocast_enabled(at::kCUDA)});
      run_pipeline(flattening(), context);
      const Scopes scopes = find_scopes(*context.graph, context.entry);
      explained.warnings = scopes.warnings;
      Describer describer(scopes);
      describer.describe(context.graph->block());
      explained.operators = std::move(describer.operators);
      nodes = std::move(describer.nodes);
      if (!can_enter_scopes(*context.graph)) {
        explained.warnings.emplace_back(
            "nothing was run: the program has tasks, or operators with a stated policy");
        return;
      }
      copies.put_into(context.graph);
      insert_observers(nodes);
      run_pipeline(recording(), context);
      code.emplace(context.graph, function.name());
    });
  }
  const bool writes = std::any_of(nodes.begin(), nodes.end(),
                                  [](const Node* node) { return is_write(node) || is_call(node); });
  std::vector<std::vector<double>> seconds(nodes.size());
  for (size_t i = 0; i < runs.size() && code; ++i) {
    Session with{&explained.operators, &nodes, i == 0, i == 0 ? at : Looks()};
    with.seconds.resize(nodes.size());
    const Stack results = run(*code, copy_of(module, copies, writes), runs[i], with);
    copies = Copies();
    if (with.at.gradients) {
      note_gradients(explained.operators, with, results);
    }
    for (size_t id = 0; id < nodes.size() && i > 1; ++id) {  // the second one warms up
      seconds[id].push_back(with.seconds[id]);
    }
  }
  for (size_t id = 0; id < nodes.size(); ++id) {
    if (!seconds[id].empty()) {
      explained.operators[id].seconds = median(seconds[id]);
    }
  }
  return explained;
}

}  // namespace jit_amp
