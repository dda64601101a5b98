#include "passes/lowering/lower.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/ir/constants.h>

#include <functional>
#include <unordered_set>

#include "analysis/plan.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::DeviceType;

// Whether the node does nothing but compute new values from its operands.
bool is_pure(const Node* node) {
  const FunctionSchema* schema = node->maybeSchema();
  if (!schema || node->hasSideEffects() || !node->blocks().empty()) {
    return false;
  }
  const auto aliases = [](const c10::Argument& argument) {
    return argument.alias_info() != nullptr;
  };
  return std::none_of(schema->arguments().begin(), schema->arguments().end(), aliases) &&
         std::none_of(schema->returns().begin(), schema->returns().end(), aliases);
}

// The values that a node and its blocks use and do not make themselves.
void collect_free(Node* node, std::unordered_set<Value*>& made, std::vector<Value*>& free) {
  for (Value* input : node->inputs()) {
    if (!made.count(input) && std::find(free.begin(), free.end(), input) == free.end()) {
      free.push_back(input);
    }
  }
  for (Value* output : node->outputs()) {
    made.insert(output);
  }
  for (Block* block : node->blocks()) {
    for (Value* input : block->inputs()) {
      made.insert(input);
    }
    for (Node* inner : block->nodes()) {
      collect_free(inner, made, free);
    }
    collect_free(block->return_node(), made, free);
  }
}

class Rewriter {
 public:
  Rewriter(const std::shared_ptr<Graph>& graph, Destination destination, DeviceType accelerator)
      : graph_(graph), destination_(destination), accelerator_(accelerator) {
    for (Node* fork : all_nodes(*graph, prim::fork)) {
      forks_[fork->g(attr::Subgraph).get()] = fork;
    }
  }

  void apply(const NodePlan& plan) {
    owner_ = plan.node->owningGraph();
    if (plan.dispatches) {
      dispatch(plan);
      return;
    }
    const WithInsertPoint before(plan.node);
    if (plan.query || plan.queries_by_name) {
      Value* found = plan.query ? answer(plan, *plan.query) : answer_by_name(plan);
      plan.node->output()->replaceAllUsesWith(found);
      plan.node->destroy();
      return;
    }
    if (plan.accelerator == Action::set_dtype) {
      set_dtype(plan);
    }
    Value* cpu = target(plan, DeviceType::CPU, plan.cpu);
    Value* accelerator = target(plan, accelerator_, plan.accelerator);
    if (cpu || accelerator) {
      cast_operands(plan.node, cpu ? cpu : none(), accelerator ? accelerator : none());
    }
  }

  // Only CPU's and the accelerator's autocast can be chosen at run time.
  void check_device(Node* enter, Value* name) {
    owner_ = enter->owningGraph();
    const WithInsertPoint before(enter);
    Node* check =
        owner_->insertNode(owner_->create(ops::known_device, named({name}, accelerator_here()), 0));
    check->copyMetadata(enter);
  }

 private:
  Value* none() { return constant(c10::IValue()); }

  Value* dtype_constant(c10::ScalarType dtype) { return constant(static_cast<int64_t>(dtype)); }

  // Operands of an operator of the dialect, which says for which accelerator it is, if not for
  // CUDA.
  std::vector<Value*> named(std::vector<Value*> operands, DeviceType accelerator) {
    if (accelerator != DeviceType::CUDA) {
      operands.push_back(constant(std::string(c10::DeviceTypeName(accelerator, true))));
    }
    return operands;
  }

  // One constant for all of a graph, at its beginning: the targets of equal casts are the same
  // values then.
  Value* constant(const c10::IValue& of) {
    Value*& value = constants_[{owner_, c10::str(of)}];
    if (!value) {
      const WithInsertPoint first(*owner_->nodes().begin());
      value = owner_->insertConstant(of);
    }
    return value;
  }

  // A state's dtype for a device, as a value of the graph being rewritten.
  Value* static_dtype(const DeviceState& at, DeviceType device) {
    auto known = at.dtype;
    if (destination_ == Destination::in_process && known) {
      return dtype_constant(*known);
    }
    if (destination_ == Destination::stock && !known) {
      known = at::autocast::get_autocast_dtype(device);
    }
    return entry_dtype(device, known);
  }

  // What holds for `device` in the state, as a value: `outside` if no dynamic scope names the
  // device, else what `inside` makes of the innermost one that does.
  Value* chosen(const AutocastState& state, DeviceType device, const c10::TypePtr& type,
                Value* outside, const std::function<Value*(const DeviceState&)>& inside) {
    Value* result = outside;
    for (const Dynamic& scope : state.dynamic) {
      if (scope.overridden.count(device) || !scope.inside.count(device)) {
        continue;
      }
      Value* named =
          owner_->insert(aten::eq, {owned(scope.device_name),
                                    std::string(c10::DeviceTypeName(device, /*lower_case=*/true))});
      Value* otherwise = result;
      result =
          insert_if(
              named, [&] { return inside(scope.inside.at(device)); }, [&] { return otherwise; })
              ->setType(type);
    }
    return result;
  }

  // `visibly`: as code can see it, to which a scope for CUDA does nothing where there is none.
  Value* enabled(const AutocastState& state, DeviceType device, bool visibly) {
    const bool is_missing = visibly && device == DeviceType::CUDA && !at::hasCUDA();
    const auto value = [&](const DeviceState& at) {
      return owner_->insertConstant(at.enabled && !(at.by_scope && is_missing));
    };
    return chosen(state, device, c10::BoolType::get(), value(state.at(device)), value);
  }

  Value* dtype(const AutocastState& state, DeviceType device) {
    return chosen(state, device, c10::IntType::get(), static_dtype(state.at(device), device),
                  [&](const DeviceState& inside) { return static_dtype(inside, device); });
  }

  // The dtype to cast to where autocast is on for the device, None where it is off.
  Value* dtype_if_enabled(const AutocastState& state, DeviceType device,
                          const std::function<Value*(const DeviceState&)>& target) {
    const auto value = [&](const DeviceState& at) { return at.enabled ? target(at) : none(); };
    return chosen(state, device, c10::OptionalType::create(c10::IntType::get()),
                  value(state.at(device)), value);
  }

  // A value of the graph's entry: a constant dtype that must not fold yet, or the ambient one.
  Value* entry_dtype(DeviceType device, std::optional<c10::ScalarType> known) {
    Value*& value = dtypes_[{device, known}];
    if (!value) {
      Node* node = nullptr;
      if (known) {
        node = graph_->create(ops::deferred, 1);
        node->i_(attr::value, static_cast<int64_t>(*known));
        graph_->block()->prependNode(node);
      } else {
        node = graph_->create(ops::ambient_dtype, 1);
        graph_->block()->prependNode(node);
        const WithInsertPoint here(node);
        node->addInput(graph_->insertConstant(c10::DeviceTypeName(device, /*lower_case=*/true)));
      }
      node->output()->setType(c10::IntType::get());
      value = node->output();
    }
    return owned(value);
  }

  Value* owned(Value* value) { return in(owner_, value); }

  // A value of a graph around as one of a forked subgraph: one more operand of the fork, which may
  // itself be in a forked subgraph.
  Value* in(Graph* graph, Value* value) {
    if (value->owningGraph() == graph) {
      return value;
    }
    Value*& inner = imports_[{graph, value}];
    if (!inner) {
      Node* fork = forks_.at(graph);
      fork->addInput(in(fork->owningGraph(), value));
      inner = graph->addInput()->setType(value->type());
    }
    return inner;
  }

  Value* target(const NodePlan& plan, DeviceType device, Action action) {
    switch (action) {
      case Action::to_scope:
        return dtype_if_enabled(*plan.state, device,
                                [&](const DeviceState& at) { return static_dtype(at, device); });
      case Action::to_float32:
        return dtype_if_enabled(*plan.state, device,
                                [&](const DeviceState&) { return dtype_constant(c10::kFloat); });
      case Action::promote:
        return insert(
            plan.node, ops::widest,
            {all_tensors(plan.node),
             dtype_if_enabled(*plan.state, device,
                              [&](const DeviceState& at) { return static_dtype(at, device); }),
             owner_->insertConstant(c10::DeviceTypeName(device, /*lower_case=*/true))},
            c10::OptionalType::create(c10::IntType::get()));
      default:
        return nullptr;
    }
  }

  // The operands that eager's promote_type looks at: Tensor and Tensor[], not Tensor?.
  Value* all_tensors(Node* node) {
    std::vector<Value*> tensors;
    const auto& formals = node->schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      if (is_tensor_list(formals[i].type())) {
        return node->input(i);
      }
      if (is_tensor(formals[i].type())) {
        tensors.push_back(node->input(i));
      }
    }
    return owner_->insertNode(owner_->createList(c10::TensorType::get(), tensors))->output();
  }

  void cast_operands(Node* node, Value* cpu, Value* accelerator) {
    const auto& formals = node->schema().arguments();
    std::unordered_map<Value*, Value*> done;
    for (size_t i = 0; i < formals.size() && i < node->inputs().size(); ++i) {
      Value* operand = node->input(i);
      Value*& cast = done[operand];
      if (!cast) {
        cast = cast_operand(node, formals[i].type(), operand, cpu, accelerator);
      }
      node->replaceInput(i, cast);
    }
  }

  // Where this pass puts the cast of an operand into the graph, in front of the operator.
  Value* cast_operand(Node* node, const c10::TypePtr& formal, Value* operand, Value* cpu,
                      Value* accelerator) {
    static const c10::TypePtr tensor = c10::TensorType::get();
    static const c10::TypePtr optional = c10::OptionalType::ofTensor();
    static const c10::TypePtr list = c10::ListType::ofTensors();
    for (const auto& type : {tensor, list, optional}) {
      if (formal->isSubtypeOf(*optional) || formal->isSubtypeOf(*list)) {
        if (operand->type()->isSubtypeOf(*type) && !operand->mustBeNone()) {
          return insert(node, ops::cast, named({operand, cpu, accelerator}, accelerator_), type);
        }
      }
    }
    return operand;
  }

  // What a question about the state of a device is answered with.
  Value* answer(const NodePlan& plan, DeviceType device) {
    const bool asks_enabled = asks_whether_enabled(plan.node);
    if (!asks_enabled && !plan.state->at(device).dtype_known) {
      throw diagnostic(Diagnostic::query_of_dynamic, plan.node);
    }
    return asks_enabled ? enabled(*plan.state, device, true) : dtype(*plan.state, device);
  }

  Value* answer_by_name(const NodePlan& plan) {
    Value* name = plan.node->input(0);
    check_device(plan.node, name);
    Value* is_cpu = owner_->insert(aten::eq, {name, std::string("cpu")});
    Value* cpu = answer(plan, DeviceType::CPU);
    Value* accelerator = answer(plan, accelerator_here());
    return insert_if(
               is_cpu, [&] { return cpu; }, [&] { return accelerator; })
        ->setType(cpu->type());
  }

  // The accelerator's fp32_set_opt_dtype: a dtype that the call gives stands.
  void set_dtype(const NodePlan& plan) {
    Node* node = plan.node;
    const auto& formals = node->schema().arguments();
    for (size_t i = 0; i < formals.size(); ++i) {
      if (formals[i].name() == "dtype") {
        const auto operands =
            named({node->input(0), node->input(i), enabled(*plan.state, accelerator_, false)},
                  accelerator_);
        node->replaceInput(i, insert(node, ops::opt_dtype, operands,
                                     c10::OptionalType::create(c10::IntType::get())));
      }
    }
  }

  Value* insert(Node* origin, c10::Symbol kind, at::ArrayRef<Value*> inputs,
                const c10::TypePtr& type) {
    Node* node = owner_->insertNode(owner_->create(kind, inputs, 1));
    node->copyMetadata(origin);
    node->output()->setType(type);
    return node->output();
  }

  // Puts the node into a subgraph that runs under the state's autocast.
  void dispatch(const NodePlan& plan) {
    Node* node = plan.node;
    std::unordered_set<Value*> made;
    std::vector<Value*> free;
    collect_free(node, made, free);

    auto subgraph = std::make_shared<Graph>();
    std::unordered_map<Value*, Value*> inside;
    std::vector<Value*> outside;
    for (Value* value : free) {
      if (value->node()->kind() == prim::Constant) {
        Node* copy = subgraph->createClone(value->node(), [](Value* v) { return v; });
        subgraph->block()->prependNode(copy);
        inside[value] = copy->output();
      } else {
        inside[value] = subgraph->addInput()->setType(value->type());
        outside.push_back(value);
      }
    }
    Node* copy = subgraph->createClone(node, [&](Value* v) { return inside.at(v); });
    subgraph->appendNode(copy);
    for (Value* output : copy->outputs()) {
      subgraph->registerOutput(output);
    }

    const WithInsertPoint before(node);
    std::vector<std::string> devices;
    std::vector<Value*> inputs;
    for (const DeviceType device : plan.state->named()) {
      devices.push_back(c10::DeviceTypeName(device, /*lower_case=*/true));
      inputs.push_back(enabled(*plan.state, device, destination_ == Destination::in_process));
      // One that is random is not to be folded, even if its operands are constants.
      const auto known = plan.state->at(device).dtype;
      inputs.push_back(destination_ == Destination::in_process && node->isNondeterministic() &&
                               plan.state->dynamic.empty()
                           ? entry_dtype(device, known)
                           : dtype(*plan.state, device));
    }
    inputs.insert(inputs.end(), outside.begin(), outside.end());
    Node* scoped = owner_->create(is_pure(node) ? ops::scoped : ops::scoped_effect, inputs,
                                  node->outputs().size());
    scoped->copyMetadata(node);
    scoped->g_(attr::Subgraph, subgraph);
    scoped->ss_(ops::devices, devices);
    if (plan.state->cache_enabled) {
      scoped->i_(ops::cache_enabled, *plan.state->cache_enabled);
    }
    owner_->insertNode(scoped);
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      scoped->output(i)->setType(node->output(i)->type());
      node->output(i)->replaceAllUsesWith(scoped->output(i));
    }
    node->destroy();
  }

  std::shared_ptr<Graph> graph_;
  Destination destination_;
  DeviceType accelerator_;
  Graph* owner_ = nullptr;  // of the node being rewritten: graph_ or a fork's
  std::map<std::pair<DeviceType, std::optional<c10::ScalarType>>, Value*> dtypes_;
  std::map<std::pair<Graph*, Value*>, Value*> imports_;
  std::map<std::pair<Graph*, std::string>, Value*> constants_;  // by what is printed of them
  std::map<Graph*, Node*> forks_;  // by subgraph: a task's thread has dtypes of its own, so those
                                   // of the call are handed in
};

}  // namespace

bool lower(const std::shared_ptr<torch::jit::Graph>& graph, const Scopes& scopes,
           const AutocastState& entry, Destination destination) {
  const auto plans = plan_of(*graph, scopes, entry, destination);
  if (plans.empty() && scopes.scaffolding.empty()) {
    return false;
  }
  Rewriter rewriter(graph, destination, accelerator_of(scopes, entry, destination));
  for (const Boundary& boundary : scopes.boundaries) {
    if (boundary.device_name) {
      rewriter.check_device(boundary.node, boundary.device_name);
    }
    if (boundary.error) {
      insert_failure(boundary.node, *boundary.error);
    }
  }
  for (const NodePlan& plan : plans) {
    rewriter.apply(plan);
  }
  for (auto node = scopes.scaffolding.rbegin(); node != scopes.scaffolding.rend(); ++node) {
    (*node)->destroy();
  }
  return true;
}

}  // namespace jit_amp
