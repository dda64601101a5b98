// observed: what is known of an operator from calls of it.
//
// One row for each overload, made by scripts/observe from PyTorch's own samples. An overload
// without a row was never called with success: nothing is known of it.
#pragma once

#include <ATen/core/operator_name.h>

#include <cstdint>
#include <string>
#include <vector>

namespace jit_amp {

// What autocast does to operators that one without an autocast kernel calls inside.
enum class Reach : uint8_t { nothing, promote, cast };

// The dtype of a result, as a function of the operands.
struct DtypeRule {
  enum Kind : uint8_t {
    unknown,
    same,             // that of each of the operands in `of`: they are equal, or the call fails
    promote,          // type promotion over all tensors and numbers
    promote_tensors,  // type promotion over all tensors
    fixed,            // `dtype`
    standard,         // torch.get_default_dtype()
  } kind = unknown;
  bool floats_only = false;  // where the first tensor operand is of floating point
  bool heeds_dtype = false;  // an argument `dtype` that is given is the result's, whatever else
  std::vector<size_t> of;
  int8_t dtype = 0;
};

// Whether a result has dimensions.
struct DimsRule {
  enum Kind : uint8_t {
    unknown,
    same,  // as operand `of`
    some,  // always
    any    // if one of the tensor operands has
  } kind = unknown;
  size_t of = 0;
};

struct Observed {
  Reach cpu;
  Reach cuda;
  std::vector<DtypeRule> dtypes;  // by result
  std::vector<DimsRule> dims;
};

// Null for an overload that was not observed.
const Observed* observed(const c10::OperatorName& name);

// The names of all overloads that have a row.
std::vector<std::string> observed_overloads();

}  // namespace jit_amp
