#include "runtime/explain.h"

#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/csrc/jit/ir/scope.h>
#include <torch/csrc/jit/runtime/custom_operator.h>

#include <algorithm>
#include <unordered_map>

#include "analysis/policy.h"
#include "analysis/traits.h"
#include "core/ambient.h"
#include "core/copies.h"
#include "core/debug_info.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/places.h"
#include "passes/lowering/enter_scopes.h"
#include "passes/lowering/run_tasks.h"
#include "pipelines/script.h"
#include "runtime/kernels.h"
#include "runtime/program.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using at::Tensor;

// What is known before anything runs.

Place placed(const SourceRange& range, std::string function = "") {
  Place place = place_of(range);
  place.function = std::move(function);
  return place;
}

// The lines that lead to a node, from the outermost call to its own.
std::vector<Place> place_stack(const Node* node) {
  std::vector<Place> stack;
  std::string function;
  if (const auto callstack = node->callstack()) {
    for (const auto& [callee, range, module] : (*callstack)->vec()) {
      stack.push_back(placed(range, function));
      function = callee ? callee->name() : "";
    }
  }
  const auto traced = traced_calls(node);
  for (Place place : traced) {
    place.function = stack.empty() ? "" : place.function;
    stack.push_back(std::move(place));
  }
  if (traced.empty()) {
    stack.push_back(placed(node->sourceRange(), function));
  }
  return stack;
}

// Of a frozen module's checks (insert_check in core/graphs.h), also in what was loaded.
bool is_of_check(const Node* node) {
  const SourceRange range = as_written(node->sourceRange());
  return range.source() && range.source()->filename() == "jit_amp";
}

// A node that somebody wrote, and that autocast might do something to.
bool is_operator(const Node* node) {
  if (is_of_check(node)) {
    return false;
  }
  if (is_call(node)) {
    return true;
  }
  const auto* schema = node->maybeSchema();
  return schema && !node->kind().is_prim() &&
         c10::Dispatcher::singleton().findOp(schema->operator_name()) &&
         std::any_of(node->outputs().begin(), node->outputs().end(),
                     [](const Value* value) { return is_of_tensors(value->type()); });
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
  std::vector<OperatorRecord> operators;
  std::set<SourceText> sources;

 private:
  // The text that a place stands in is one of the report's.
  void note(const SourceRange& range) {
    const SourceRange original = as_written(range);
    if (seen_.insert(original.source()).second) {
      if (auto source = source_of(original)) {
        sources.insert(std::move(*source));
      }
    }
  }

  Place noted(const SourceRange& range) {
    note(range);
    return place_of(range);
  }

  OperatorRecord described(const Node* node) {
    OperatorRecord made;
    made.name = name_of(node);
    made.is_call = is_call(node);
    made.stack = place_stack(node);
    if (const auto callstack = node->callstack()) {
      for (const auto& [callee, range, module] : (*callstack)->vec()) {
        note(range);
        if (module && module->instance_name() != "SELF") {
          made.module += (made.module.empty() ? "" : ".") + module->instance_name();
        }
      }
    }
    note(node->sourceRange());
    const AutocastState& state = *scopes_.state.at(node);
    made.is_dynamic = !state.dynamic.empty();
    for (const c10::DeviceType device : state.named()) {
      const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
      made.state[name] = state.at(device);
      const auto scope = std::find_if(open_.rbegin(), open_.rend(), [&](const Boundary* each) {
        return each->inside.count(device) != 0;
      });
      if (scope != open_.rend()) {
        const Node* enter = (*scope)->node;
        made.scope[name] = noted(enter->input(0)->node()->sourceRange());
        if (!made.scope[name].line) {
          made.scope[name] = noted(enter->sourceRange());
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
  std::set<std::shared_ptr<Source>> seen_;
};

// What runs.

// The operator of a node. It does not run again where it is random, calls code that is not in the
// graph, or gives whatever was in memory.
CalledOperator called_by(const Node* node) {
  CalledOperator made;
  const auto* schema = node->maybeSchema();
  if (schema && !is_call(node)) {
    made.schema = *schema;
    made.run = [node](Stack& stack) { node->getOperation()(stack); };
    made.can_run_again = !node->isNondeterministic() && traits_of(node).memory != Memory::unwritten;
  }
  return made;
}

std::vector<c10::IValue> taken(Stack& stack, size_t count) {
  std::vector<c10::IValue> values(stack.end() - static_cast<std::ptrdiff_t>(count), stack.end());
  drop(stack, count);
  return values;
}

Operation make_begin(const Node* node) {
  const auto id = static_cast<size_t>(node->i(attr::value));
  const size_t inputs = node->inputs().size();
  return [=](Stack& stack) { SessionGuard::session()->begin(id, taken(stack, inputs)); };
}

Operation make_end(const Node* node) {
  const auto id = static_cast<size_t>(node->i(attr::value));
  const size_t inputs = node->inputs().size();
  return [=](Stack& stack) { SessionGuard::session()->end(id, taken(stack, inputs)); };
}

const RegisterOperators in_explanations({
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

// Returns what the program returned.
Stack run(const Code& code, const ObjectPtr& self, const Stack& arguments, Session& with) {
  Stack stack;
  if (self) {
    stack.emplace_back(self);
  }
  stack.insert(stack.end(), arguments.begin(), arguments.end());
  const size_t inputs = stack.size();
  const SessionGuard seeing(with);
  const LeaveScopesGuard scopes;
  run_here(code, stack, inputs);
  return stack;
}

std::vector<Tensor> tensors_in(const Stack& values) {
  std::vector<Tensor> found;
  for (const c10::IValue& value : values) {
    for_tensors(value, [&](const Tensor& t) { found.push_back(t); });
  }
  return found;
}

// The node that gives an operand of `node`; null where that is only known when it runs.
const Node* source_of(const Node* node, const FailedOperand& operand) {
  const Node* source = node->input(operand.argument)->node();
  if (!operand.element) {
    return source;
  }
  const bool is_list =
      source->kind() == prim::ListConstruct || source->kind() == prim::TupleConstruct;
  return is_list && *operand.element < source->inputs().size()
             ? source->input(*operand.element)->node()
             : nullptr;
}

// Says of each operand of `node` that no operator of `operators` has given what it is: an argument,
// part of the module, or of what other operator.
void name_origins(Failed& failed, const Node* node, const GraphFunction& function,
                  const ObjectPtr& self, const Stack& arguments) {
  std::unordered_map<c10::TensorImpl*, std::string> names;
  if (self) {
    for (const auto& attribute : Module(self).named_attributes()) {
      if (attribute.value.isTensor() && attribute.value.toTensor().defined()) {
        names.emplace(attribute.value.toTensor().unsafeGetTensorImpl(), attribute.name);
      }
    }
  }
  const auto& formals = function.getSchema().arguments();
  const size_t first = self ? 1 : 0;
  for (size_t i = 0; i < arguments.size() && first + i < formals.size(); ++i) {
    for_tensors(arguments[i], [&](const Tensor& t) {
      names.insert_or_assign(t.unsafeGetTensorImpl(), "argument " + formals[first + i].name());
    });
  }
  for (FailedOperand& operand : failed.operands) {
    if (!operand.value.isTensor() || operand.maker) {
      continue;
    }
    const auto name = names.find(operand.value.toTensor().unsafeGetTensorImpl());
    const Node* source = source_of(node, operand);
    const auto* schema = source ? source->maybeSchema() : nullptr;
    if (name != names.end()) {
      operand.origin = name->second;
    } else if (schema && !source->kind().is_prim()) {
      operand.origin = c10::toString(schema->operator_name());
      operand.place = place_stack(source).back();
    }
  }
}

// The module that a run works on: what it writes stays there. Parameters are shared where nothing
// in the graph writes.
ObjectPtr copied_module(const ObjectPtr& module, Copies& copies, bool writes) {
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

}  // namespace

Explained explain(GraphFunction& function, const ObjectPtr& module, const std::vector<Stack>& runs,
                  ExplainOptions at) {
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
      const bool runs_here = can_enter_scopes(*context.graph);
      if (runs_here) {
        run_tasks(*context.graph);
      }
      const Scopes scopes = find_scopes(*context.graph, context.entry);
      explained.warnings = scopes.warnings;
      Describer describer(scopes);
      describer.describe(context.graph->block());
      explained.operators = std::move(describer.operators);
      explained.sources = std::move(describer.sources);
      nodes = std::move(describer.nodes);
      if (!runs_here) {
        explained.warnings.emplace_back(
            "nothing was run: the program has operators with a stated policy, or a task's future "
            "that"
            " comes from an argument, an object's attribute or code that is not in the graph");
        return;
      }
      copies.put_into(context.graph);
      insert_observers(nodes);
      run_pipeline(entering(), context);
      code.emplace(context.graph, function.name());
    });
  }
  bool writes = std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return is_write(node) || updates_statistics(node) || is_call(node);
  });
  for (const Node* node : all_nodes(*context.graph)) {
    writes |= node->kind() == aten::backward;  // to the gradients
  }
  std::vector<CalledOperator> called;
  std::transform(nodes.begin(), nodes.end(), std::back_inserter(called), called_by);
  Times times(nodes.size());
  for (size_t i = 0; i < runs.size() && code; ++i) {
    Session with(&explained.operators, &called, i == 0, at);
    const ObjectPtr self = copied_module(module, copies, writes);
    Stack results;
    try {
      results = run(*code, self, runs[i], with);
    } catch (...) {
      explained.error = std::current_exception();
      explained.failed = with.failed();
      if (explained.failed) {
        name_origins(*explained.failed, nodes[explained.failed->id], function, self, runs[i]);
      }
      break;
    }
    copies = Copies();
    if (i == 0 && at.gradients) {
      with.note_gradients(tensors_in(results));
    }
    if (i > 1) {  // the second one warms up
      times.add(with);
    }
  }
  times.put_into(explained.operators);
  return explained;
}

}  // namespace jit_amp
