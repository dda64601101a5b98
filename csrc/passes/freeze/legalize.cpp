#include "passes/freeze/legalize.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <map>
#include <set>
#include <utility>

#include "analysis/guards.h"
#include "analysis/hidden_calls.h"
#include "analysis/layout.h"
#include "analysis/policy.h"
#include "core/definitions.h"
#include "core/devices.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "passes/freeze/answer_questions.h"
#include "passes/freeze/mark_modes.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

class Legalizer {
 public:
  Legalizer(const std::shared_ptr<Graph>& graph, const Facts& facts,
            const std::vector<AbstractValue>& inputs, bool by_example)
      : graph_(graph), facts_(facts), inputs_(inputs), by_example_(by_example), aliases_(graph) {
    for (Node* node : all_nodes(*graph)) {
      if (node->kind() == prim::ListConstruct && node->owningGraph() == graph.get() &&
          !aliases_.hasWriters(node->output())) {
        fixed_lists_.insert(node->output()->unique());
      }
    }
  }

  void run() {
    for (Node* node : all_nodes(*graph_)) {
      if (ops::is_scoped(node)) {
        free_of_scope(node);
      }
    }
    for (Node* node : all_nodes(*graph_)) {
      if (node->kind() == ops::cast) {
        simplify(node);
      } else if (node->kind() == ops::widest) {
        settle(node);
      }
    }
    for (Node* node : all_nodes(*graph_)) {
      if (node->kind() == ops::unchanged) {  // what a scope has read is part of the frozen module
        node->destroy();
      } else if (node->kind() == ops::deferred) {
        const WithInsertPoint here(node);
        node->output()->replaceAllUsesWith(
            node->owningGraph()->insertConstant(node->i(attr::value)));
        node->destroy();
      }
    }
    for (Node* node : all_nodes(*graph_)) {
      if (node->kind() == ops::cast && !drop_round_trip(node)) {
        decide(node);
      }
    }
    for (Node* node : all_nodes(*graph_)) {
      if (node->kind() == ops::widest && is_fixed(node->input(0)) && is_int(node->input(1))) {
        compare_elements(node);
      } else if (const char* name = definition_of(node)) {
        define(node, name);
      }
    }
    check_inputs();
  }

 private:
  bool known_off(const Value* value, c10::DeviceType device) const {
    if (!value->type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      return value->type()->isSubtypeOf(*c10::NumberType::get()) ||
             value->type()->kind() == c10::TypeKind::StringType;
    }
    const auto fact = facts_.of(value);
    return value->type()->kind() == c10::TypeKind::NoneType ||
           (fact.device && *fact.device != device);
  }

  static AutocastError not_freezable(const Node* scoped, const std::string& name,
                                     const std::string& device, const std::string& other) {
    return diagnostic(
        Diagnostic::not_freezable, scoped,
        {name, "inside an autocast scope for " + device + ": what autocast does to it",
         other + "move it out of the scope, or wrap it in `with torch.autocast(..., "
                 "enabled=False)` with the casts that you want"});
  }

  // The node stands free of its scope if no device whose policy it would need can matter.
  void free_of_scope(Node* scoped) {
    const auto& devices = scoped->ss(ops::devices);
    Node* inner = wrapped_node(scoped);
    const size_t first = state_inputs(scoped);
    GraphFunction* hidden = hidden_callee(inner);
    for (size_t i = 0; i < devices.size(); ++i) {
      const auto device = c10::Device(devices[i]).type();
      const auto enabled = constant_as<bool>(scoped->input(2 * i));
      if (enabled && !*enabled) {
        continue;
      }
      if (hidden && concerns_autocast(*hidden, device)) {
        throw not_freezable(scoped, inner->kind().toQualString(), devices[i], "");
      }
      if (policy_of(inner, device) == Policy::untouched) {
        continue;
      }
      for (size_t k = first; k < scoped->inputs().size(); ++k) {
        if (!known_off(scoped->input(k), device)) {
          const std::string name = inner->kind().toQualString();
          std::string other =
              by_example_ ? "" : "give freeze `example_inputs` that are on another device, ";
          if (!inner->kind().is_aten() && !inner->kind().is_prim()) {
            other = "say what is to be done with it, `jit_amp.policy.register(\"" + name +
                    "\", device_type, policy)`, " + other;
          }
          throw not_freezable(scoped, name, devices[i], other);
        }
      }
    }
    unwrap(scoped);
  }

  bool is_fixed(const Value* list) const {
    return list->owningGraph() == graph_.get() && fixed_lists_.count(list->unique()) != 0;
  }

  // A list that is a constant, or made in the graph, is cast element by element: facts apply to
  // each, and constants are folded.
  void simplify(Node* cast) {
    Value* list = cast->input(0);
    if (cast->output()->type()->kind() != c10::TypeKind::ListType) {
      return;
    }
    Graph* graph = cast->owningGraph();
    const WithInsertPoint here(cast);
    std::vector<Value*> given;
    if (is_fixed(list)) {
      given = list->node()->inputs().vec();
    } else if (const auto constant = toIValue(list)) {
      for (const at::Tensor& tensor : constant->toTensorVector()) {
        given.push_back(graph->insertConstant(tensor));
      }
    } else {
      return;
    }
    std::vector<Value*> elements;
    for (Value* element : given) {
      std::vector<Value*> operands = cast->inputs().vec();
      operands[0] = element;
      Node* one = graph->insertNode(graph->create(ops::cast, operands, 1));
      one->copyAttributes(*cast);
      one->copyMetadata(cast);
      one->output()->setType(c10::TensorType::get());
      elements.push_back(one->output());
    }
    Node* made = graph->insertNode(graph->createList(c10::TensorType::get(), elements));
    cast->output()->replaceAllUsesWith(made->output());
    cast->destroy();
  }

  // The dtype that the promote policy casts to, where it is known.
  void settle(Node* widest) {
    const WithInsertPoint here(widest);
    if (widest->input(1)->mustBeNone()) {  // autocast is off for the device
      widest->output()->replaceAllUsesWith(widest->input(1));
    } else if (const auto known = widest_of(widest, facts_)) {
      widest->output()->replaceAllUsesWith(
          widest->owningGraph()->insertConstant(static_cast<int64_t>(*known)));
    }
  }

  // A value that was widened to float32 and is cast back is what it was. The other way round it
  // would not be: that rounds. Returns whether the cast is gone.
  bool drop_round_trip(Node* cast) {
    Value* wide = cast->input(0);
    if (wide->node()->kind() != aten::to && wide->node()->kind() != ops::cast) {
      return false;
    }
    Value* source = wide->node()->input(0);
    const Fact before = facts_.of(source);
    if (!before.dtype() || !before.device || facts_.of(wide).dtype() != c10::kFloat ||
        (*before.dtype() != c10::kBFloat16 && *before.dtype() != c10::kHalf)) {
      return false;
    }
    Value* const to = target_on(*before.device, cast);
    const auto target = to ? toIValue(to) : std::nullopt;
    if (!target || !target->isInt() || layout_of(source) == Layout::any ||
        *before.dtype() != c10::ScalarType(target->toInt()) || aliases_.hasWriters(source) ||
        aliases_.hasWriters(wide)) {
      return false;
    }
    cast->output()->replaceAllUsesWith(source);
    cast->destroy();
    return true;
  }

  // A cast that is idle, or of a tensor that is sure to be eligible, asks nothing at run time.
  void decide(Node* cast) {
    Value* source = cast->input(0);
    const auto become = [&](Value* value) {
      cast->output()->replaceAllUsesWith(value);
      cast->destroy();
    };
    const AbstractValue& known = facts_.known(source);
    if (is_idle(known, cast)) {
      become(source);
      return;
    }
    if (known.kind != AbstractValue::tensor || known.maybe_none || !known.fact.device ||
        !known.fact.dtypes.within(DTypes::eligible())) {
      return;
    }
    Value* target = target_on(*known.fact.device, cast);
    if (const auto to = toIValue(target); to && to->isInt()) {
      Graph* graph = cast->owningGraph();
      const WithInsertPoint here(cast);
      if (source->type()->kind() == c10::TypeKind::OptionalType) {
        source = graph->insertUncheckedCast(source, c10::TensorType::get());
      }
      Value* converted =
          is_part_of_constant(source) ? part_of_cast(source, target) : to_dtype(source, target);
      if (converted->node()->kind() == aten::to) {
        set_apart(converted->node(), cast);
        converted->node()->copyMetadata(cast);
      }
      become(converted);
    }
  }

  static Value* to_dtype(Value* value, Value* dtype) {
    return dtype->owningGraph()->insert(aten::to, {value, dtype, false, false, c10::IValue()});
  }

  // Whether the value is a constant, or a part or view of one: `weight.split(...)[0]`. Not one that
  // is written to, which is another after the write, nor a part that has other strides than its
  // cast.
  bool is_part_of_constant(const Value* value) const {
    const Node* node = value->node();
    if (aliases_.hasWriters(value)) {
      return false;
    }
    if (node->kind() == prim::Constant) {
      return true;
    }
    if (node->inputs().empty() || !is_view(node) || layout_of(value) == Layout::any) {
      return false;
    }
    const Value* whole = node->input(0);
    return dtype_of(whole) && dtype_of(whole) == dtype_of(value) && is_part_of_constant(whole);
  }

  // Whether the node gives views of its first operand, and would give the same later.
  bool is_view(const Node* node) const {
    if (node->kind() == prim::ListUnpack) {
      return true;
    }
    const auto* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
    const auto* alias = schema ? schema->arguments()[0].alias_info() : nullptr;
    const auto rest = node->inputs().slice(1);
    return alias && !alias->isWrite() && node->outputs().size() == 1 &&
           std::none_of(rest.begin(), rest.end(),
                        [&](const Value* operand) { return aliases_.hasWriters(operand); });
  }

  // The dtype of a tensor, or of all tensors in a list.
  std::optional<c10::ScalarType> dtype_of(const Value* value) const {
    const AbstractValue& known = facts_.known(value);
    const AbstractValue one = known.kind == AbstractValue::list ? known.element() : known;
    return one.kind == AbstractValue::tensor && !one.maybe_none ? one.fact.dtype() : std::nullopt;
  }

  // The same part of the constant after a cast, which is folded: a weight is held once, whatever
  // reads parts of it.
  Value* part_of_cast(Value* value, Value* dtype) {
    Node* node = value->node();
    if (node->kind() != prim::Constant) {
      Value* whole = part_of_cast(node->input(0), dtype);
      Node* part = node->owningGraph()->insertNode(node->owningGraph()->createClone(
          node, [&](Value* input) { return input == node->input(0) ? whole : input; }));
      return part->output(value->offset());
    }
    if (node->owningBlock() != graph_->block()) {
      return to_dtype(value, dtype);
    }
    Value*& cast = casts_of_constants_[{value, toIValue(dtype)->toInt()}];
    if (!cast) {
      const WithInsertPoint here(node->next());
      cast = to_dtype(value, graph_->insertConstant(*toIValue(dtype)));
    }
    return cast;
  }

  // Null for a device that has no autocast here.
  static Value* target_on(c10::DeviceType device, Node* cast) {
    return device == c10::kCPU                   ? cast->input(1)
           : device == ops::accelerator_in(cast) ? cast->input(2)
                                                 : nullptr;
  }

  // Whether the cast leaves everything as it is.
  static bool is_idle(const AbstractValue& known, Node* cast) {
    if (known.kind == AbstractValue::none) {
      return true;
    }
    if (known.kind == AbstractValue::list) {
      return std::all_of(known.parts.begin(), known.parts.end(),
                         [&](const AbstractValue& part) { return is_idle(part, cast); });
    }
    if (known.kind != AbstractValue::tensor) {
      return false;
    }
    const DTypes eligible = known.fact.dtypes & DTypes::eligible();
    const auto is_idle_on = [&](c10::DeviceType device) {
      Value* target = target_on(device, cast);
      if (!target || target->mustBeNone() || eligible.is_empty()) {
        return true;
      }
      const auto to = toIValue(target);
      return to && to->isInt() &&
             eligible == DTypes::only(static_cast<c10::ScalarType>(to->toInt()));
    };
    return known.fact.device ? is_idle_on(*known.fact.device)
                             : is_idle_on(c10::kCPU) && is_idle_on(ops::accelerator_in(cast));
  }

  static const char* definition_of(const Node* node) {
    if (node->kind() == ops::cast) {
      const auto kind = node->output()->type()->kind();
      return kind == c10::TypeKind::TensorType     ? "cast"
             : kind == c10::TypeKind::OptionalType ? "cast_optional"
                                                   : "cast_list";
    }
    return node->kind() == ops::widest         ? "widest"
           : node->kind() == ops::opt_dtype    ? "opt_dtype"
           : node->kind() == ops::known_device ? "known_device"
           : node->kind() == ops::fail         ? "fail"
                                               : nullptr;
  }

  // Puts the definition in the operator's place, with what the facts know of its operands.
  void define(Node* node, const char* name) {
    std::string source = kDialect;
    if (node->kind() == ops::cast || node->kind() == ops::opt_dtype ||
        node->kind() == ops::known_device) {
      source = written_for(ops::accelerator_in(node), source);
    } else if (name == std::string_view("widest") || name == std::string_view("wider")) {
      source =
          written_for(c10::Device(toIValue(node->inputs().back())->toStringRef()).type(), source);
    }
    auto body = definition(source, name);
    for (Node* to : all_nodes(*body, aten::to)) {
      set_apart(to, node);
    }
    if (node->inputs().size() > body->inputs().size()) {
      node->removeInput(body->inputs().size());  // the accelerator
    }
    for (size_t i = 0; i < body->inputs().size(); ++i) {
      answer(*body, body->inputs()[i], facts_.of(node->input(i)));
    }
    replace_by(node, source, name, *body);
  }

  static bool is_int(const Value* value) {
    const auto constant = toIValue(value);
    return constant && constant->isInt();
  }

  // The same for the widest dtype of such a list.
  void compare_elements(Node* widest) {
    Graph* graph = widest->owningGraph();
    std::vector<Node*> steps;
    Value* result = widest->input(1);
    for (Value* element : widest->input(0)->node()->inputs()) {
      steps.push_back(
          graph
              ->create(prim::CallFunction, {element, result, widest->input(1), widest->input(2)}, 1)
              ->insertBefore(widest));
      result = steps.back()->output();
      result->setType(c10::IntType::get());
    }
    widest->output()->replaceAllUsesWith(result);
    widest->destroy();
    for (Node* step : steps) {
      define(step, "wider");
    }
  }

  // Questions about `value` that `fact` answers become constants.
  static void answer(Graph& graph, const Value* value, const Fact& fact) {
    for (const Use& use : std::vector<Use>(value->uses())) {
      if (const auto known = jit_amp::answer(use.user, fact)) {
        const WithInsertPoint here(use.user);
        use.user->output()->replaceAllUsesWith(graph.insertConstant(*known));
      }
    }
  }

  // What the facts rest on.
  void check_inputs() {
    const WithInsertPoint begin(*graph_->nodes().begin());
    for (size_t i = 0; i < inputs_.size(); ++i) {
      Value* value = graph_->inputs()[i];
      if (inputs_[i].kind == AbstractValue::module) {
        continue;
      }
      const std::string name = value->debugNameBase();
      const auto check = guard_of(inputs_[i], value->type(), name, by_example_);
      if (!check.empty()) {
        insert_check(*graph_, check, "check", {value}, "check of `" + name + "`");
      }
    }
  }

  std::shared_ptr<Graph> graph_;
  const Facts& facts_;
  const std::vector<AbstractValue>& inputs_;
  const bool by_example_;
  const AliasDb aliases_;         // of the graph as it came
  std::set<size_t> fixed_lists_;  // numbers of the lists of graph_ that nothing appends to
  std::map<std::pair<Value*, int64_t>, Value*> casts_of_constants_;
};

}  // namespace

void legalize(std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts,
              const std::vector<AbstractValue>& inputs, bool by_example) {
  Legalizer(graph, facts, inputs, by_example).run();
}

}  // namespace jit_amp
