#include "analysis/promotion.h"

#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/jit/ir/constants.h>

#include <utility>

namespace jit_amp {
namespace {

using namespace torch::jit;
using c10::TypeKind;

// More ways in which operands may come are not tried one by one.
constexpr size_t kMostCombinations = 512;

// A tensor to ask with: nothing is in it.
at::Tensor sample(c10::ScalarType dtype, Dims dims) {
  return dims == Dims::some ? at::empty({0}, dtype) : at::empty({}, dtype);
}

// PyTorch's own type promotion of one choice of dtypes and dimensions. A number with a fraction
// counts as the default dtype, and an imaginary one as the complex dtype that belongs to it: those
// of the process that runs the program, so each that there may be is asked.
DTypes promote_one(const std::vector<std::pair<c10::ScalarType, Dims>>& tensors,
                   const std::vector<c10::ScalarType>& numbers) {
  at::native::ResultTypeState state;
  for (const auto& [dtype, dims] : tensors) {
    state = at::native::update_result_type_state(sample(dtype, dims), state);
  }
  std::optional<DTypes> results;
  for (const c10::ScalarType standard : default_dtypes().list()) {
    state.wrappedResult = c10::ScalarType::Undefined;
    for (const c10::ScalarType dtype : numbers) {
      const c10::ScalarType as = c10::isComplexType(dtype)    ? c10::toComplexType(standard)
                                 : c10::isFloatingType(dtype) ? standard
                                                              : dtype;
      state.wrappedResult = state.wrappedResult == c10::ScalarType::Undefined
                                ? as
                                : c10::promoteTypes(state.wrappedResult, as);
    }
    const DTypes result = DTypes::only(at::native::result_type(state));
    results = results ? *results | result : result;
  }
  return *results;
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

}  // namespace

DTypes default_dtypes() {
  return DTypes::only(c10::kFloat) | DTypes::only(c10::kDouble) | DTypes::only(c10::kHalf) |
         DTypes::only(c10::kBFloat16);
}

DTypes promote(const std::vector<Promoted>& operands) {
  try {
    return promote_all(operands);
  } catch (const c10::Error&) {  // dtypes that have no promotion
    return DTypes::any();
  }
}

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

}  // namespace jit_amp
