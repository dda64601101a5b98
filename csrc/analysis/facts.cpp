#include "analysis/facts.h"

#include <ATen/native/TypeProperties.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include "analysis/observed.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::TypeKind;

const Known kNothing;

const auto kCpu = Symbol::aten("cpu");
const auto kCuda = Symbol::aten("cuda");
const auto kDict = Symbol::aten("dict");
const auto kExtend = Symbol::aten("extend");
const auto kPop = Symbol::aten("pop");
const auto kReverse = Symbol::aten("reverse");

// More ways in which operands may come are not tried one by one.
constexpr size_t kMostCombinations = 512;

// What torch.get_default_dtype() may be.
DTypes default_dtypes() {
  return DTypes::only(c10::kFloat) | DTypes::only(c10::kDouble) | DTypes::only(c10::kHalf) |
         DTypes::only(c10::kBFloat16);
}

// An operand of type promotion: a tensor, or a number.
struct Promoted {
  Fact tensor;
  std::optional<c10::ScalarType> number;
};

// c10's type promotion of one choice of dtypes and dimensions.
DTypes promote_one(const std::vector<std::pair<c10::ScalarType, Dims>>& tensors,
                   const std::vector<c10::ScalarType>& numbers) {
  at::native::ResultTypeState state;
  const auto add = [](c10::ScalarType& result, c10::ScalarType dtype) {
    result = result == c10::ScalarType::Undefined ? dtype : c10::promoteTypes(result, dtype);
  };
  bool is_floating = false;
  for (const auto& [dtype, dims] : tensors) {
    add(dims == Dims::some ? state.dimResult : state.zeroResult, dtype);
    is_floating |= c10::isFloatingType(dtype) || c10::isComplexType(dtype);
  }
  bool has_floating_number = false;
  for (const c10::ScalarType dtype : numbers) {
    add(state.wrappedResult, dtype);
    has_floating_number |= c10::isFloatingType(dtype);
  }
  if (has_floating_number && !is_floating) {
    return default_dtypes();
  }
  return DTypes::only(at::native::result_type(state));
}

// All results of type promotion over everything that the operands may be.
DTypes promote_all(const std::vector<Promoted>& operands) {
  std::vector<c10::ScalarType> numbers;
  std::vector<std::vector<std::pair<c10::ScalarType, Dims>>> choices;
  size_t combinations = 1;
  for (const Promoted& operand : operands) {
    if (operand.number) {
      numbers.push_back(*operand.number);
      continue;
    }
    if (operand.tensor.dtypes.is_any()) {
      return DTypes::any();
    }
    auto& choice = choices.emplace_back();
    for (const c10::ScalarType dtype : operand.tensor.dtypes.list()) {
      for (const Dims dims : {Dims::none, Dims::some}) {
        if (operand.tensor.dims == Dims::unknown || operand.tensor.dims == dims) {
          choice.emplace_back(dtype, dims);
        }
      }
    }
    combinations *= choice.size();
    if (combinations == 0 || combinations > kMostCombinations) {
      return DTypes::any();
    }
  }
  std::optional<DTypes> result;
  for (size_t number = 0; number < combinations; ++number) {
    size_t rest = number;
    std::vector<std::pair<c10::ScalarType, Dims>> chosen;
    for (const auto& choice : choices) {
      chosen.push_back(choice[rest % choice.size()]);
      rest /= choice.size();
    }
    const DTypes one = promote_one(chosen, numbers);
    result = result ? *result | one : one;
  }
  return result.value_or(DTypes::any());
}

DTypes promote(const std::vector<Promoted>& operands) {
  try {
    return promote_all(operands);
  } catch (const c10::Error&) {  // dtypes that have no promotion
    return DTypes::any();
  }
}

// The dtype of a number as type promotion sees it, by its type.
std::optional<c10::ScalarType> dtype_of_number(const Value* value) {
  if (const auto constant = toIValue(value); constant && constant->isScalar()) {
    return constant->toScalar().type();
  }
  switch (value->type()->kind()) {
    case TypeKind::IntType:
      return c10::kLong;
    case TypeKind::FloatType:
      return c10::kDouble;
    case TypeKind::BoolType:
      return c10::kBool;
    case TypeKind::ComplexType:
      return c10::kComplexDouble;
    default:
      return std::nullopt;
  }
}

bool holds_tensors(const c10::TypePtr& type) {
  return type->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
         type->isSubtypeOf(*c10::ListType::ofTensors()) ||
         type->isSubtypeOf(*c10::ListType::ofOptionalTensors());
}

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

  void run(Graph& graph, const std::vector<Known>& inputs) {
    const auto values = graph.inputs();
    for (size_t i = 0; i < values.size(); ++i) {
      set(values[i], i < inputs.size() ? inputs[i] : Known{});
    }
    do {
      changed_ = false;
      visit(graph.block());
    } while (changed_);
  }

  Facts facts;

 private:
  const Known& of(const Value* value) const { return facts.known(value); }

  void set(const Value* value, Known known) {
    facts.set(value, is_written(value) ? of_written(value, std::move(known)) : std::move(known));
  }

  // A container that is made here, and that only operators which are known to do so write to, holds
  // what it was made of and what these put into it. That is found later in the graph: what is known
  // becomes less from one visit to the next, until nothing changes.
  Known of_written(const Value* value, Known known) {
    const auto kind = value->node()->kind();
    const bool is_made = kind == prim::ListConstruct || kind == prim::DictConstruct ||
                         (kind == kDict && value->node()->inputs().empty());
    const bool is_attribute = kind == prim::GetAttr && known.kind != Known::unknown;
    if (value->owningGraph() != graph_ || !(is_made || is_attribute)) {
      return {};
    }
    const auto& uses = is_attribute ? attributes_[name_of(value)] : value->uses();
    std::optional<Known> element;
    const auto add = [&](const Known& more) { element = element ? join(*element, more) : more; };
    for (const Known& part : known.parts) {
      add(part);
    }
    for (const Use& use : uses) {
      const auto put = put_by(use);
      if (!put || (is_attribute && use.user->kind() == prim::Return)) {
        return {};
      }
      if (*put && facts.has(*put)) {
        const bool is_list = use.user->kind() == kExtend;
        add(is_list ? of(*put).element() : of(*put));
      }
    }
    Known now{.kind = value->type()->kind() == TypeKind::ListType ? Known::list : Known::dict};
    if (facts.has(value)) {
      for (const Known& part : of(value).parts) {
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
  Known attribute(const Node* node) const {
    const Known& owner = of(node->input());
    if (owner.kind != Known::module || assigned_.count(name_of(node->output()))) {
      return {};
    }
    Known known = owner.at(c10::IValue(node->s(attr::name)));
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
    static const std::map<c10::Symbol, size_t> puts{
        {aten::append, 1}, {kExtend, 1},  {Symbol::aten("insert"), 2}, {aten::_set_item, 2},
        {kPop, 0},         {kReverse, 0}, {Symbol::aten("clear"), 0},
    };
    const auto found = puts.find(node->kind());
    if (found == puts.end() || gives_it_back || use.offset != 0) {
      return std::nullopt;
    }
    return found->second == 0 ? nullptr : node->input(found->second);
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
    set(body->inputs()[0], {.kind = Known::plain});
    std::vector<Known> carried;
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
        Known joined = join(carried[i], of(body->outputs()[i + 1]));
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
      Known known;
      if (is_plain(type) && type->kind() != TypeKind::NoneType) {
        known.kind = Known::plain;
      } else if (is_known && type->isSubtypeOf(*c10::TensorType::get())) {
        known = Known::of_tensor(result(node, *schema, i));
      } else if (is_known && type->isSubtypeOf(*c10::ListType::ofTensors())) {
        known = of_list(node, *schema, i);
      }
      set(node->output(i), std::move(known));
    }
  }

  // Nodes that only hold, take apart or pass on what they are given.
  std::optional<Known> of_structure(Node* node) {
    switch (node->kind()) {
      case prim::Constant:
        if (auto constant = toIValue(node->output())) {
          return known_of(*constant);
        }
        return Known{};
      case prim::Uninitialized:
        return Known{.kind = Known::never};
      case prim::GetAttr:
        return attribute(node);
      case prim::ListConstruct:
      case prim::TupleConstruct: {
        Known known{.kind = node->kind() == prim::TupleConstruct ? Known::tuple : Known::list};
        known.is_fixed = known.kind == Known::list;
        for (const Value* element : node->inputs()) {
          known.parts.push_back(of(element));
        }
        return known;
      }
      case prim::DictConstruct: {
        Known known{.kind = Known::dict, .is_fixed = true};
        for (size_t i = 0; i < node->inputs().size(); i += 2) {
          const auto key = toIValue(node->input(i));
          if (!key) {
            return Known{};
          }
          known.keys.push_back(*key);
          known.parts.push_back(of(node->input(i + 1)));
        }
        return known;
      }
      case prim::TupleIndex: {
        const auto index = constant_as<int64_t>(node->input(1));
        return index ? of(node->input(0)).at(*index) : Known{};
      }
      case prim::TupleSlice: {
        Known known{.kind = Known::tuple};
        for (int64_t i = node->i(attr::beg); i < node->i(attr::end); ++i) {
          known.parts.push_back(of(node->input()).at(i));
        }
        return known;
      }
      case prim::unchecked_cast:
      case prim::unchecked_unwrap_optional:
      case aten::_unwrap_optional: {
        Known known = of(node->input());
        known.maybe_none = false;
        return known.kind == Known::none ? Known{} : known;
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
      return cast(of(node->input(0)), node);
    }
    if (node->kind() == kDict && node->inputs().empty()) {
      return Known{.kind = Known::dict, .is_fixed = true};
    }
    static const auto kGet = Symbol::aten("get");
    static const auto kValues = Symbol::aten("values");
    const auto from = node->inputs().empty() ? TypeKind::AnyType : node->input(0)->type()->kind();
    if (from == TypeKind::DictType && node->kind() == kGet) {
      const auto key = toIValue(node->input(1));
      Known found = key ? of(node->input(0)).at(*key) : of(node->input(0)).element();
      return node->inputs().size() > 2 ? join(found, of(node->input(2)))
                                       : join(found, {.kind = Known::none});
    }
    if (from == TypeKind::DictType && node->kind() == kValues) {
      return Known::all_of(Known::list, of(node->input(0)).element());
    }
    return std::nullopt;
  }

  Known element_of(const Node* node) const {
    const Known& container = of(node->input(0));
    const auto key = toIValue(node->input(1));
    if (container.kind == Known::dict) {
      return key ? container.at(*key) : container.element();
    }
    return key && key->isInt() ? container.at(key->toInt()) : container.element();
  }

  // The result of a cast of an operand.
  Known cast(const Known& operand, const Node* node) const {
    Known result = operand;
    if (operand.kind == Known::list) {
      for (Known& part : result.parts) {
        part = cast(part, node);
      }
      return result;
    }
    if (operand.kind != Known::tensor) {
      return operand.kind == Known::none ? operand : Known{};
    }
    result.fact = cast(operand.fact, node);
    return result;
  }

  Fact cast(const Fact& operand, const Node* node) const {
    Fact result = operand;
    if (!operand.device) {
      result.dtypes = DTypes::any();
      return result;
    }
    const Value* target = *operand.device == c10::kCPU    ? node->input(1)
                          : *operand.device == c10::kCUDA ? node->input(2)
                                                          : nullptr;
    if (!target || target->mustBeNone()) {
      return result;
    }
    const DTypes to = asked(target);
    if (operand.dtypes.is_any() || to.is_any()) {
      result.dtypes = DTypes::any();
    } else if (operand.dtypes.within(DTypes::eligible())) {
      result.dtypes = to;
    } else if (!(operand.dtypes & DTypes::eligible()).is_empty()) {
      result.dtypes = operand.dtypes | to;
    }
    return result;
  }

  // The dtypes that a value which is a dtype may stand for.
  DTypes asked(const Value* dtype) const {
    const Node* from = dtype->node();
    if (const auto number = number_of(dtype)) {
      return DTypes::only(static_cast<c10::ScalarType>(*number));
    }
    if (from->kind() == prim::dtype) {
      return facts.of(from->input()).dtypes;
    }
    if (from->kind() == ops::widest) {
      const auto lower = number_of(from->input(1));
      if (const auto known = widest_of(from, facts)) {
        return DTypes::only(*known);
      }
      return lower ? DTypes::only(c10::kFloat) | DTypes::only(static_cast<c10::ScalarType>(*lower))
                   : DTypes::any();
    }
    if (from->kind() == prim::unchecked_cast || from->kind() == prim::unchecked_unwrap_optional) {
      return asked(from->input());
    }
    return DTypes::any();
  }

  // The tensors among a node's operands, those in lists too.
  void add_tensors(const Known& known, std::vector<Fact>& found) const {
    if (known.kind == Known::tensor && !known.maybe_none) {
      found.push_back(known.fact);
    } else if (known.kind == Known::list && !known.maybe_none) {
      for (const Known& part : known.parts) {
        add_tensors(part, found);
      }
    } else if (known.kind != Known::none) {
      found.emplace_back();
    }
  }

  std::vector<Fact> tensors_at(const Node* node, size_t operand) const {
    std::vector<Fact> found;
    if (operand < node->inputs().size() && holds_tensors(node->input(operand)->type())) {
      add_tensors(of(node->input(operand)), found);
    }
    return found;
  }

  std::vector<Fact> tensors(const Node* node) const {
    std::vector<Fact> found;
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const auto more = tensors_at(node, i);
      found.insert(found.end(), more.begin(), more.end());
    }
    return found;
  }

  static std::optional<size_t> position(const c10::FunctionSchema& schema, const char* name) {
    const auto at = schema.argumentIndexWithName(name);
    return at ? std::optional<size_t>(*at) : std::nullopt;
  }

  static bool is_move(const Node* node) {
    return node->kind() == aten::to || node->kind() == kCpu || node->kind() == kCuda;
  }

  // A result of an operator of ATen.
  Fact result(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    if (const auto written = written_operand(schema, index)) {
      const auto operand = tensors_at(node, *written);
      Fact fact = operand.size() == 1 ? operand[0] : Fact{};
      fact.dims = dims(node, schema, index);
      return fact;
    }
    return {dtypes(node, schema, index), device(node, schema), dims(node, schema, index)};
  }

  // The operand that a result is, if it is one that was written to.
  static std::optional<size_t> written_operand(const c10::FunctionSchema& schema, size_t index) {
    const auto* returned =
        index < schema.returns().size() ? schema.returns()[index].alias_info() : nullptr;
    if (!returned || !returned->isWrite()) {
      return std::nullopt;
    }
    for (size_t i = 0; i < schema.arguments().size(); ++i) {
      const auto* argument = schema.arguments()[i].alias_info();
      if (argument && argument->isWrite() && argument->beforeSets() == returned->beforeSets()) {
        return i;
      }
    }
    return std::nullopt;
  }

  DTypes dtypes(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    if (const auto at = position(schema, "dtype"); at && *at < node->inputs().size()) {
      Value* dtype = node->input(*at);
      if (!dtype->mustBeNone()) {
        const bool may_be_none = dtype->type()->kind() == TypeKind::OptionalType;
        return may_be_none && !number_of(dtype) ? DTypes::any() : asked(dtype);
      }
    }
    if (is_move(node)) {  // TorchScript's own overloads of these have no row
      const auto other = position(schema, "other");
      const auto facts = tensors_at(node, other.value_or(0));
      return facts.size() == 1 ? facts[0].dtypes : DTypes::any();
    }
    const Observed* seen = observed(schema.operator_name());
    return seen && index < seen->dtypes.size() ? by_rule(node, schema, seen->dtypes[index])
                                               : DTypes::any();
  }

  DTypes by_rule(Node* node, const c10::FunctionSchema& schema, const DtypeRule& rule) const {
    if (rule.floats_only) {
      size_t first = 0;
      while (first < node->inputs().size() && !holds_tensors(node->input(first)->type())) {
        ++first;
      }
      const auto operands = tensors_at(node, first);
      const auto is_float = [](const Fact& fact) { return fact.dtypes.within(DTypes::floating()); };
      if (operands.empty() || !std::all_of(operands.begin(), operands.end(), is_float)) {
        return DTypes::any();
      }
    }
    switch (rule.kind) {
      case DtypeRule::fixed:
        return DTypes::only(static_cast<c10::ScalarType>(rule.dtype));
      case DtypeRule::standard:
        return default_dtypes();
      case DtypeRule::same: {
        DTypes result = DTypes::any();
        for (const size_t at : rule.of) {
          for (const Fact& fact : tensors_at(node, at)) {
            result = result & fact.dtypes;
          }
        }
        return result.is_empty() ? DTypes::any() : result;
      }
      case DtypeRule::promote:
      case DtypeRule::promote_tensors: {
        std::vector<Promoted> operands;
        for (const Fact& fact : tensors(node)) {
          operands.push_back({fact, std::nullopt});
        }
        for (size_t i = 0; rule.kind == DtypeRule::promote && i < schema.arguments().size(); ++i) {
          const auto& formal = schema.arguments()[i].type();
          const bool takes_number = formal->kind() == TypeKind::NumberType ||
                                    (formal->kind() == TypeKind::OptionalType &&
                                     formal->containedType(0)->kind() == TypeKind::NumberType);
          if (!takes_number || i >= node->inputs().size() || node->input(i)->mustBeNone()) {
            continue;
          }
          const auto number = dtype_of_number(node->input(i));
          if (!number) {
            return DTypes::any();
          }
          operands.push_back({{}, number});
        }
        return operands.empty() ? DTypes::any() : promote(operands);
      }
      default:
        return DTypes::any();
    }
  }

  // Where the result is: where the call says, or where all tensors are.
  std::optional<c10::DeviceType> device(Node* node, const c10::FunctionSchema& schema) const {
    if (node->kind() == kCpu) {
      return c10::kCPU;
    }
    if (node->kind() == kCuda) {
      return c10::kCUDA;
    }
    if (const auto at = position(schema, "device"); at && *at < node->inputs().size()) {
      Value* given = node->input(*at);
      if (!given->mustBeNone()) {
        if (const auto constant = toIValue(given); constant && constant->isDevice()) {
          return constant->toDevice().type();
        }
        return given->node()->kind() == prim::device ? facts.of(given->node()->input()).device
                                                     : std::nullopt;
      }
    }
    const auto operands = tensors(node);
    if (operands.empty()) {
      return position(schema, "device") ? std::optional(c10::kCPU) : std::nullopt;
    }
    if (node->kind() == aten::to && position(schema, "other")) {
      return operands.size() == 2 ? operands[1].device : std::nullopt;
    }
    const auto first = operands[0].device;
    const bool same = std::all_of(operands.begin(), operands.end(),
                                  [&](const Fact& fact) { return fact.device == first; });
    return same ? first : std::nullopt;
  }

  Dims dims(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    for (const char* name : {"size", "shape"}) {  // whose length is the number of dimensions
      const auto at = position(schema, name);
      if (at && *at < node->inputs().size() &&
          node->input(*at)->type()->kind() == TypeKind::ListType) {
        const Known& sizes = of(node->input(*at));
        if (sizes.kind == Known::list && sizes.is_fixed) {
          return sizes.parts.empty() ? Dims::none : Dims::some;
        }
        return Dims::unknown;
      }
    }
    if (is_move(node)) {
      const auto facts = tensors_at(node, 0);
      return facts.size() == 1 ? facts[0].dims : Dims::unknown;
    }
    const Observed* seen = observed(schema.operator_name());
    if (!seen || index >= seen->dims.size()) {
      return Dims::unknown;
    }
    const DimsRule& rule = seen->dims[index];
    switch (rule.kind) {
      case DimsRule::some:
        return Dims::some;
      case DimsRule::same: {
        const auto facts = tensors_at(node, rule.of);
        return facts.size() == 1 ? facts[0].dims : Dims::unknown;
      }
      case DimsRule::any: {
        const auto facts = tensors(node);
        const auto is = [&](Dims dims) {
          return [dims](const Fact& fact) { return fact.dims == dims; };
        };
        return std::any_of(facts.begin(), facts.end(), is(Dims::some))   ? Dims::some
               : std::all_of(facts.begin(), facts.end(), is(Dims::none)) ? Dims::none
                                                                         : Dims::unknown;
      }
      default:
        return Dims::unknown;
    }
  }

  // A list of tensors: the parts of one, or what lists are made of.
  Known of_list(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    static const std::array passes_on{aten::add, aten::slice,          aten::list,
                                      aten::mul, Symbol::aten("copy"), Symbol::aten("sorted"),
                                      aten::cat};
    if (holds_tensors(schema.returns()[index].type())) {
      return Known::all_of(Known::list, Known::of_tensor(result(node, schema, index)));
    }
    if (std::find(passes_on.begin(), passes_on.end(), node->kind()) == passes_on.end()) {
      return {};
    }
    std::optional<Known> joined;
    for (const Value* operand : node->inputs()) {
      if (operand->type()->kind() != TypeKind::ListType) {
        continue;
      }
      const Known& list = of(operand);
      if (list.kind != Known::list) {
        return {};
      }
      if (!list.parts.empty()) {
        joined = joined ? join(*joined, list.element()) : list.element();
      }
    }
    return joined ? Known::all_of(Known::list, *joined) : Known{};
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
      if (copies[i]->type()->kind() != TypeKind::TensorType) {
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

const Known& Facts::known(const torch::jit::Value* value) const {
  const auto found = known_.find(key(value));
  return found == known_.end() ? kNothing : found->second;
}

bool Facts::has(const torch::jit::Value* value) const { return known_.count(key(value)) != 0; }

Fact Facts::of(const torch::jit::Value* value) const {
  const Known& found = known(value);
  return found.kind == Known::tensor && !found.maybe_none ? found.fact : Fact{};
}

void Facts::set(const torch::jit::Value* value, Known known) {
  known_[key(value)] = std::move(known);
}

Facts find_facts(const std::shared_ptr<torch::jit::Graph>& graph,
                 const std::vector<Known>& inputs) {
  if (changes_dtypes(*graph)) {
    return {};
  }
  Analyst analyst(graph);
  analyst.run(*graph, inputs);
  return std::move(analyst.facts);
}

std::optional<c10::ScalarType> widest_of(const torch::jit::Node* widest, const Facts& facts) {
  const auto number = number_of(widest->input(1));
  const auto name = constant_as<std::string>(widest->input(2));
  const Known& operands = facts.known(widest->input(0));
  if (!number || !name || operands.kind != Known::list) {
    return std::nullopt;
  }
  const auto lower = static_cast<c10::ScalarType>(*number);
  const auto device = c10::Device(*name).type();
  bool is_float = false;
  bool may_be_float = false;
  for (const Known& part : operands.parts) {
    const Fact& fact = part.fact;
    if (part.kind != Known::tensor || part.maybe_none || !fact.device) {
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
