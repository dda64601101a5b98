#include "analysis/transfer.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "analysis/policy.h"
#include "analysis/promotion.h"
#include "analysis/traits.h"
#include "core/dialect.h"
#include "core/types.h"

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::TypeKind;

const auto kCpu = Symbol::aten("cpu");
const auto kCuda = Symbol::aten("cuda");

class Results {
 public:
  explicit Results(const Facts& facts) : facts_(facts) {}

  // The result of a cast of an operand.
  AbstractValue cast(const AbstractValue& operand, const Node* node) const {
    AbstractValue result = operand;
    if (operand.kind == AbstractValue::list) {
      for (AbstractValue& part : result.parts) {
        part = cast(part, node);
      }
      return result;
    }
    if (operand.kind != AbstractValue::tensor) {
      return operand.kind == AbstractValue::none ? operand : AbstractValue{};
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
    const Value* target = *operand.device == c10::kCPU                   ? node->input(1)
                          : *operand.device == ops::accelerator_in(node) ? node->input(2)
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
      return facts_.of(from->input()).dtypes;
    }
    if (from->kind() == ops::widest) {
      const auto lower = number_of(from->input(1));
      if (const auto known = widest_of(from, facts_)) {
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
  void add_tensors(const AbstractValue& known, std::vector<Fact>& found) const {
    if (known.kind == AbstractValue::tensor && !known.maybe_none) {
      found.push_back(known.fact);
    } else if (known.kind == AbstractValue::list && !known.maybe_none) {
      for (const AbstractValue& part : known.parts) {
        add_tensors(part, found);
      }
    } else if (known.kind != AbstractValue::none) {
      found.emplace_back();
    }
  }

  std::vector<Fact> tensors_at(const Node* node, size_t operand) const {
    std::vector<Fact> found;
    if (operand < node->inputs().size() && is_of_tensors(node->input(operand)->type())) {
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

  // Of an operator whose `dtype` an accelerator's autocast sets where the call gives none.
  DTypes by_opt_dtype(Node* node, const c10::FunctionSchema& schema, const DtypeRule& rule,
                      const Node* opt_dtype) const {
    const Fact operand = facts_.of(opt_dtype->input(0));
    const auto enabled = constant_as<bool>(opt_dtype->input(2));
    if (rule.heeds_dtype && number_of(opt_dtype->input(1))) {
      return asked(opt_dtype->input(1));
    }
    if (!rule.heeds_dtype || !opt_dtype->input(1)->mustBeNone() || !operand.device || !enabled) {
      return DTypes::any();
    }
    const bool is_set = *enabled && *operand.device == ops::accelerator_in(opt_dtype);
    const bool may_be_set = is_set && !(operand.dtypes & DTypes::eligible()).is_empty();
    const bool must_be_set = is_set && operand.dtypes.within(DTypes::eligible());
    return must_be_set  ? DTypes::only(c10::kFloat)
           : may_be_set ? DTypes::only(c10::kFloat) | by_rule(node, schema, rule)
                        : by_rule(node, schema, rule);
  }

  DTypes dtypes(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    const Observed* seen = observed(schema.operator_name());
    const bool is_seen = seen && index < seen->dtypes.size();
    if (const auto at = position(schema, "dtype"); at && *at < node->inputs().size()) {
      Value* dtype = node->input(*at);
      if (dtype->node()->kind() == ops::opt_dtype) {
        return is_seen ? by_opt_dtype(node, schema, seen->dtypes[index], dtype->node())
                       : DTypes::any();
      }
      if (!dtype->mustBeNone()) {
        const bool may_be_none = dtype->type()->kind() == TypeKind::OptionalType;
        return !is_seen || !seen->dtypes[index].heeds_dtype || (may_be_none && !number_of(dtype))
                   ? DTypes::any()
                   : asked(dtype);
      }
    }
    if (is_move(node)) {  // TorchScript's own overloads of these have no row
      const auto other = position(schema, "other");
      const auto facts = tensors_at(node, other.value_or(0));
      return facts.size() == 1 ? facts[0].dtypes : DTypes::any();
    }
    return is_seen ? by_rule(node, schema, seen->dtypes[index]) : DTypes::any();
  }

  DTypes by_rule(Node* node, const c10::FunctionSchema& schema, const DtypeRule& rule) const {
    if (rule.floats_only) {
      size_t first = 0;
      while (first < node->inputs().size() && !is_of_tensors(node->input(first)->type())) {
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
        return given->node()->kind() == prim::device ? facts_.of(given->node()->input()).device
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
    if (std::all_of(operands.begin(), operands.end(),
                    [&](const Fact& fact) { return fact.device == first; })) {
      return first;
    }
    if (!takes_one_device(node)) {
      return std::nullopt;
    }
    // One without dimensions may be on the CPU whatever the others are on.
    const auto found = std::find_if(operands.begin(), operands.end(), [](const Fact& fact) {
      return fact.dims == Dims::some && fact.device;
    });
    return found == operands.end() ? std::nullopt : found->device;
  }

  Dims dims(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    for (const char* name : {"size", "shape"}) {  // whose length is the number of dimensions
      const auto at = position(schema, name);
      if (at && *at < node->inputs().size() &&
          node->input(*at)->type()->kind() == TypeKind::ListType) {
        const AbstractValue& sizes = of(node->input(*at));
        if (sizes.kind == AbstractValue::list && sizes.is_fixed) {
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
  AbstractValue of_list(Node* node, const c10::FunctionSchema& schema, size_t index) const {
    if (is_of_tensors(schema.returns()[index].type())) {
      return AbstractValue::all_of(AbstractValue::list,
                                   AbstractValue::of_tensor(result(node, schema, index)));
    }
    if (!passes_elements_on(schema, index)) {
      return {};
    }
    std::optional<AbstractValue> joined;
    for (const Value* operand : node->inputs()) {
      if (operand->type()->kind() != TypeKind::ListType) {
        continue;
      }
      const AbstractValue& list = of(operand);
      if (list.kind != AbstractValue::list) {
        return {};
      }
      if (!list.parts.empty()) {
        joined = joined ? join(*joined, list.element()) : list.element();
      }
    }
    return joined ? AbstractValue::all_of(AbstractValue::list, *joined) : AbstractValue{};
  }

 private:
  const AbstractValue& of(const Value* value) const { return facts_.known(value); }

  const Facts& facts_;
};

}  // namespace

bool takes_one_device(const Node* node) {
  const c10::FunctionSchema* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
  if (!schema) {
    return false;
  }
  if (node->kind() == aten::embedding || policy_of(*schema, c10::kCUDA) == Policy::lower) {
    return true;
  }
  const Observed* seen = observed(schema->operator_name());
  return seen && std::any_of(seen->dtypes.begin(), seen->dtypes.end(), [](const DtypeRule& rule) {
           return rule.kind == DtypeRule::promote || rule.kind == DtypeRule::promote_tensors;
         });
}

AbstractValue cast_result(const Node* cast, const Facts& facts) {
  return Results(facts).cast(facts.known(cast->input(0)), cast);
}

Fact tensor_result(Node* node, const c10::FunctionSchema& schema, size_t index,
                   const Facts& facts) {
  return Results(facts).result(node, schema, index);
}

AbstractValue list_result(Node* node, const c10::FunctionSchema& schema, size_t index,
                          const Facts& facts) {
  return Results(facts).of_list(node, schema, index);
}

}  // namespace jit_amp
