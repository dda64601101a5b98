#include "analysis/facts.h"

#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <set>

#include "analysis/traits.h"
#include "analysis/transfer.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::TypeKind;

const AbstractValue kNothing;

const auto kDict = Symbol::aten("dict");

class Analyst {
 public:
  explicit Analyst(const std::shared_ptr<Graph>& graph) : graph_(graph.get()), aliases_(graph) {
    for (const Node* node : all_nodes(*graph)) {
      has_calls_ |= is_call(node) || node->kind() == prim::fork;
      const c10::FunctionSchema* schema = node->maybeSchema();
      for (size_t i = 0; schema && i < node->inputs().size() && i < schema->arguments().size();
           ++i) {
        const auto* alias = schema->arguments()[i].alias_info();
        const auto kind = node->input(i)->type()->kind();
        if (alias && alias->isWrite() &&
            (kind == TypeKind::ListType || kind == TypeKind::DictType)) {
          written_.push_back(node->input(i));
        }
      }
      if (node->kind() == prim::SetAttr) {
        assigned_.emplace(node->input(0)->type(), node->s(attr::name));
      } else if (node->kind() == prim::GetAttr) {
        auto& uses = attributes_[name_of(node->output())];
        uses.insert(uses.end(), node->output()->uses().begin(), node->output()->uses().end());
      }
    }
  }

  void run(Graph& graph, const std::vector<AbstractValue>& inputs) {
    const auto values = graph.inputs();
    for (size_t i = 0; i < values.size(); ++i) {
      set(values[i], i < inputs.size() ? inputs[i] : AbstractValue{});
    }
    do {
      changed_ = false;
      visit(graph.block());
    } while (changed_);
  }

  Facts facts;

 private:
  const AbstractValue& of(const Value* value) const { return facts.known(value); }

  void set(const Value* value, AbstractValue known) {
    facts.set(value, is_written(value) ? of_written(value, std::move(known)) : std::move(known));
  }

  // A container that is made here, and that only operators which are known to do so write to, holds
  // what it was made of and what these put into it. That is found later in the graph: what is known
  // becomes less from one visit to the next, until nothing changes.
  AbstractValue of_written(const Value* value, AbstractValue known) {
    const auto kind = value->node()->kind();
    const bool is_made = kind == prim::ListConstruct || kind == prim::DictConstruct ||
                         (kind == kDict && value->node()->inputs().empty());
    const bool is_attribute = kind == prim::GetAttr && known.kind != AbstractValue::unknown;
    if (value->owningGraph() != graph_ || !(is_made || is_attribute)) {
      return {};
    }
    const auto& uses = is_attribute ? attributes_[name_of(value)] : value->uses();
    std::optional<AbstractValue> element;
    const auto add = [&](const AbstractValue& more) {
      element = element ? join(*element, more) : more;
    };
    for (const AbstractValue& part : known.parts) {
      add(part);
    }
    for (const Use& use : uses) {
      const auto put = put_by(use);
      if (!put || (is_attribute && use.user->kind() == prim::Return)) {
        return {};
      }
      if (*put && facts.has(*put)) {
        const auto& formal = use.user->schema().arguments().back().type();
        add(formal->kind() == TypeKind::VarType ? of(*put) : of(*put).element());
      }
    }
    AbstractValue now{.kind = value->type()->kind() == TypeKind::ListType ? AbstractValue::list
                                                                          : AbstractValue::dict};
    if (facts.has(value)) {
      for (const AbstractValue& part : of(value).parts) {
        add(part);
      }
    }
    if (element) {
      now.parts = {*element};
    }
    changed_ |= !facts.has(value) || !(of(value) == now);
    return now;
  }

  // The module's type and the name of the attribute that a value is. AliasDb takes all that come
  // from attributes for one, and so do we for one name of one type.
  static std::pair<c10::TypePtr, std::string> name_of(const Value* attribute) {
    return {attribute->node()->input()->type(), attribute->node()->s(attr::name)};
  }

  // What is known of a module's attribute. A list or dictionary holds what it held when the module
  // was frozen, and what the graph puts into it. A tensor may be converted with its module, unless
  // it is one of integers; where it is moved without the constants, the graph fails.
  AbstractValue attribute(const Node* node) const {
    const AbstractValue& owner = of(node->input());
    if (owner.kind != AbstractValue::module || assigned_.count(name_of(node->output()))) {
      return {};
    }
    AbstractValue known = owner.at(c10::IValue(node->s(attr::name)));
    if (!(known.fact.dtypes & DTypes::floating()).is_empty()) {
      known.fact.dtypes = DTypes::any();
    }
    return known;
  }

  // What a use of a container puts into it: null if nothing. Nothing at all for a use after which
  // it may be in other hands.
  static std::optional<const Value*> put_by(const Use& use) {
    Node* node = use.user;
    if (node->kind() == prim::Return && !node->owningBlock()->owningNode()) {
      return nullptr;
    }
    if (node->kind() == ops::cast || node->kind() == ops::widest ||
        node->kind() == prim::ListUnpack) {
      return nullptr;
    }
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (!schema || !node->kind().is_aten() || use.offset >= schema->arguments().size()) {
      return std::nullopt;
    }
    const auto* alias = schema->arguments()[use.offset].alias_info();
    const bool gives_it_back =
        std::any_of(node->outputs().begin(), node->outputs().end(), [&](const Value* output) {
          return output->hasUses() &&
                 output->type()->kind() == node->input(use.offset)->type()->kind();
        });
    if (!alias || !alias->isWrite()) {
      // Put into another container, or given back: there it may be written to.
      return alias && (gives_it_back || alias->isWildcardAfter())
                 ? std::nullopt
                 : std::optional<const Value*>(nullptr);
    }
    const auto puts = puts_into(*schema, use.offset);
    if (!puts || puts->size() > 1 || gives_it_back || use.offset != 0) {
      return std::nullopt;
    }
    return puts->empty() ? nullptr : node->input(puts->front());
  }

  // Whether something may put other elements into a list or dictionary. In a task, of which AliasDb
  // knows nothing, anything may.
  bool is_written(const Value* value) const {
    const auto kind = value->type()->kind();
    if (kind != TypeKind::ListType && kind != TypeKind::DictType) {
      return false;
    }
    if (value->owningGraph() != graph_) {
      return true;
    }
    // AliasDb takes a write to a tensor in a list for one to the list.
    return has_calls_ ? aliases_.hasWriters(value)
                      : std::any_of(written_.begin(), written_.end(), [&](const Value* container) {
                          return container == value || aliases_.mayAlias(container, value);
                        });
  }

  void visit(Block* block) {
    for (Node* node : block->nodes()) {
      switch (node->kind()) {
        case prim::If:
          visit(node->blocks()[0]);
          visit(node->blocks()[1]);
          for (size_t i = 0; i < node->outputs().size(); ++i) {
            set(node->output(i),
                join(of(node->blocks()[0]->outputs()[i]), of(node->blocks()[1]->outputs()[i])));
          }
          break;
        case prim::Loop:
          visit_loop(node);
          break;
        default:
          transfer(node);
          break;
      }
    }
  }

  // What holds before the loop and after each iteration holds in it: to a fixed point, which is
  // there when nothing changes any more, as what is known only becomes less.
  void visit_loop(Node* loop) {
    Block* body = loop->blocks()[0];
    set(body->inputs()[0], {.kind = AbstractValue::plain});
    std::vector<AbstractValue> carried;
    for (size_t i = 0; i < loop->outputs().size(); ++i) {
      carried.push_back(of(loop->input(i + 2)));
    }
    for (bool changed = true; changed;) {
      for (size_t i = 0; i < carried.size(); ++i) {
        set(body->inputs()[i + 1], carried[i]);
      }
      visit(body);
      changed = false;
      for (size_t i = 0; i < carried.size(); ++i) {
        AbstractValue joined = join(carried[i], of(body->outputs()[i + 1]));
        changed |= !(joined == carried[i]);
        carried[i] = std::move(joined);
      }
    }
    for (size_t i = 0; i < carried.size(); ++i) {
      set(loop->output(i), carried[i]);
    }
  }

  // What follows for the results of a node without blocks of its own.
  void transfer(Node* node) {
    if (node->kind() == prim::fork) {
      auto& task = *node->g(attr::Subgraph);
      for (size_t i = 0; i < task.inputs().size(); ++i) {
        set(task.inputs()[i], of(node->input(i)));
      }
      visit(task.block());
    }
    for (Block* inner : node->blocks()) {
      visit(inner);
    }
    if (node->kind() == prim::ListUnpack || node->kind() == prim::TupleUnpack) {
      for (size_t i = 0; i < node->outputs().size(); ++i) {
        set(node->output(i), of(node->input()).at(static_cast<int64_t>(i)));
      }
      return;
    }
    if (node->outputs().size() == 1) {
      if (auto known = of_structure(node)) {
        set(node->output(), std::move(*known));
        return;
      }
    }
    const c10::FunctionSchema* schema = node->maybeSchema();
    const bool is_known = schema && node->kind().is_aten();
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      const auto& type = node->output(i)->type();
      AbstractValue known;
      if (is_plain(type) && type->kind() != TypeKind::NoneType) {
        known.kind = AbstractValue::plain;
      } else if (is_known && type->isSubtypeOf(*c10::TensorType::get())) {
        known = AbstractValue::of_tensor(tensor_result(node, *schema, i, facts));
      } else if (is_known && is_tensor_list(type)) {
        known = list_result(node, *schema, i, facts);
      }
      set(node->output(i), std::move(known));
    }
  }

  // Nodes that only hold, take apart or pass on what they are given.
  std::optional<AbstractValue> of_structure(Node* node) {
    switch (node->kind()) {
      case prim::Constant:
        if (auto constant = toIValue(node->output())) {
          return known_of(*constant);
        }
        return AbstractValue{};
      case prim::Uninitialized:
        return AbstractValue{.kind = AbstractValue::never};
      case prim::GetAttr:
        return attribute(node);
      case prim::ListConstruct:
      case prim::TupleConstruct:
      case prim::DictConstruct:
        return of_made(node);
      case prim::TupleIndex: {
        const auto index = constant_as<int64_t>(node->input(1));
        return index ? of(node->input(0)).at(*index) : AbstractValue{};
      }
      case prim::TupleSlice: {
        AbstractValue known{.kind = AbstractValue::tuple};
        for (int64_t i = node->i(attr::beg); i < node->i(attr::end); ++i) {
          known.parts.push_back(of(node->input()).at(i));
        }
        return known;
      }
      case prim::unchecked_cast:
      case prim::unchecked_unwrap_optional:
      case aten::_unwrap_optional: {
        AbstractValue known = of(node->input());
        known.maybe_none = false;
        return known.kind == AbstractValue::none ? AbstractValue{} : known;
      }
      case aten::__getitem__:
        return element_of(node);
      default:
        break;
    }
    if (node->kind() == ops::carried) {
      return of(node->input());
    }
    if (node->kind() == ops::cast) {
      return cast_result(node, facts);
    }
    if (node->kind() == kDict && node->inputs().empty()) {
      return AbstractValue{.kind = AbstractValue::dict, .is_fixed = true};
    }
    return of_dictionary(node);
  }

  // A list, tuple or dictionary that is made of its parts.
  AbstractValue of_made(const Node* node) const {
    if (node->kind() != prim::DictConstruct) {
      AbstractValue known{.kind = node->kind() == prim::TupleConstruct ? AbstractValue::tuple
                                                                       : AbstractValue::list};
      known.is_fixed = known.kind == AbstractValue::list;
      for (const Value* element : node->inputs()) {
        known.parts.push_back(of(element));
      }
      return known;
    }
    AbstractValue known{.kind = AbstractValue::dict, .is_fixed = true};
    for (size_t i = 0; i < node->inputs().size(); i += 2) {
      const auto key = toIValue(node->input(i));
      if (!key) {
        return AbstractValue{};
      }
      const auto before = std::find(known.keys.begin(), known.keys.end(), *key);
      const auto at = static_cast<size_t>(before - known.keys.begin());
      if (before == known.keys.end()) {
        known.keys.push_back(*key);
        known.parts.emplace_back();
      }
      known.parts[at] = of(node->input(i + 1));  // of one key that is there twice, the last is it
    }
    return known;
  }

  // What a dictionary's methods give.
  std::optional<AbstractValue> of_dictionary(const Node* node) const {
    static const auto kGet = Symbol::aten("get");
    static const auto kValues = Symbol::aten("values");
    const auto from = node->inputs().empty() ? TypeKind::AnyType : node->input(0)->type()->kind();
    if (from == TypeKind::DictType && node->kind() == kGet) {
      const auto key = toIValue(node->input(1));
      AbstractValue found = key ? of(node->input(0)).at(*key) : of(node->input(0)).element();
      return node->inputs().size() > 2 ? join(found, of(node->input(2)))
                                       : join(found, {.kind = AbstractValue::none});
    }
    if (from == TypeKind::DictType && node->kind() == kValues) {
      return AbstractValue::all_of(AbstractValue::list, of(node->input(0)).element());
    }
    return std::nullopt;
  }

  AbstractValue element_of(const Node* node) const {
    const AbstractValue& container = of(node->input(0));
    const auto key = toIValue(node->input(1));
    if (container.kind == AbstractValue::dict) {
      return key ? container.at(*key) : container.element();
    }
    return key && key->isInt() ? container.at(key->toInt()) : container.element();
  }

  const Graph* graph_;
  const AliasDb aliases_;
  std::map<std::pair<c10::TypePtr, std::string>, std::vector<Use>> attributes_;
  std::set<std::pair<c10::TypePtr, std::string>> assigned_;
  std::vector<const Value*> written_;  // lists and dictionaries that an operator writes to
  bool has_calls_ = false;             // of code that is not seen
  bool changed_ = false;               // what is known of a container that is written to
};

void annotate(const Block* block, Block* copy, const Facts& facts) {
  const auto note = [&](at::ArrayRef<const Value*> values, at::ArrayRef<Value*> copies) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Fact fact = facts.of(values[i]);
      if (!is_tensor(copies[i]->type())) {
        continue;
      }
      auto type = c10::TensorType::get()->withScalarType(fact.dtype());
      if (fact.device) {
        type = type->withDevice(
            c10::Device(*fact.device, *fact.device == c10::DeviceType::CPU ? -1 : 0));
      }
      copies[i]->setType(type);
    }
  };
  note(block->inputs(), copy->inputs());
  auto twin = copy->nodes().begin();
  for (const Node* node : block->nodes()) {
    note(node->outputs(), twin->outputs());
    for (size_t i = 0; i < node->blocks().size(); ++i) {
      annotate(node->blocks()[i], twin->blocks()[i], facts);
    }
    ++twin;
  }
}

// Whether a tensor may get another dtype than it was made with.
bool changes_dtypes(Graph& graph) {
  static const auto kSetData = Symbol::aten("set_data");
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->kind() == aten::set_ || node->kind() == kSetData;
  });
}

}  // namespace

Facts::Key Facts::key(const torch::jit::Value* value) {
  return {value->owningGraph(), value->unique()};
}

const AbstractValue& Facts::known(const torch::jit::Value* value) const {
  const auto found = known_.find(key(value));
  return found == known_.end() ? kNothing : found->second;
}

bool Facts::has(const torch::jit::Value* value) const { return known_.count(key(value)) != 0; }

Fact Facts::of(const torch::jit::Value* value) const {
  const AbstractValue& found = known(value);
  return found.kind == AbstractValue::tensor && !found.maybe_none ? found.fact : Fact{};
}

void Facts::set(const torch::jit::Value* value, AbstractValue known) {
  known_[key(value)] = std::move(known);
}

Facts find_facts(const std::shared_ptr<torch::jit::Graph>& graph,
                 const std::vector<AbstractValue>& inputs) {
  if (changes_dtypes(*graph)) {
    return {};
  }
  Analyst analyst(graph);
  analyst.run(*graph, inputs);
  return std::move(analyst.facts);
}

bool tells_more(torch::jit::Graph& graph, const Facts& more, const Facts& less) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    return std::any_of(node->outputs().begin(), node->outputs().end(), [&](const Value* value) {
      return !(more.of(value).dtypes == less.of(value).dtypes);
    });
  });
}

std::optional<c10::ScalarType> widest_of(const torch::jit::Node* widest, const Facts& facts) {
  const auto number = number_of(widest->input(1));
  const auto name = constant_as<std::string>(widest->input(2));
  const AbstractValue& operands = facts.known(widest->input(0));
  if (!number || !name || operands.kind != AbstractValue::list) {
    return std::nullopt;
  }
  const auto lower = static_cast<c10::ScalarType>(*number);
  const auto device = c10::Device(*name).type();
  bool is_float = false;
  bool may_be_float = false;
  for (const AbstractValue& part : operands.parts) {
    const Fact& fact = part.fact;
    if (part.kind != AbstractValue::tensor || part.maybe_none || !fact.device) {
      return std::nullopt;
    }
    const DTypes eligible = fact.dtypes & DTypes::eligible();
    if (*fact.device != device || eligible.is_empty()) {
      continue;
    }
    // Others raise: that is left to be found at run time.
    if (!eligible.within(DTypes::only(lower) | DTypes::only(c10::kFloat))) {
      return std::nullopt;
    }
    may_be_float |= fact.dtypes.has(c10::kFloat);
    is_float |= fact.dtype() == c10::kFloat;
  }
  // A list of unknown length may be empty, but then the operator raises.
  return is_float        ? std::optional(c10::kFloat)
         : !may_be_float ? std::optional(lower)
                         : std::nullopt;
}

std::optional<int64_t> number_of(const torch::jit::Value* value) {
  if (value->node()->kind() == ops::deferred) {
    return value->node()->i(attr::value);
  }
  const auto constant = toIValue(value);
  return constant && constant->isInt() ? std::optional(constant->toInt()) : std::nullopt;
}

std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts) {
  auto copy = graph->copy();
  annotate(std::as_const(*graph).block(), copy->block(), facts);
  return copy;
}

}  // namespace jit_amp
