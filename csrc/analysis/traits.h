// traits: what is known of an operator. The one place where passes look for it.
//
// Two tables. observed.inc has a row for each overload, made by scripts/observe from PyTorch's own
// samples: what it reaches inside, and the dtypes and dimensions of its results. An overload
// without a row was never called with success: nothing is known of it. traits.inc has a row for an
// operator of which more has to be known than can be observed so, or than its schema says; it is
// written by hand, and tests/jit/passes/test_traits.py runs each operator and compares. What
// PyTorch can be asked (type promotion, which operand an operator writes to, what it returns of its
// operands, which lists it puts what into) is asked and stands in neither.
//
// An operator without a row has no traits: nothing is taken for granted.
#pragma once

#include <ATen/core/operator_name.h>
#include <torch/csrc/jit/ir/ir.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace jit_amp {

// What autocast does to operators that one without an autocast kernel calls inside.
enum class InnerAutocast : uint8_t { nothing, promote, cast };

// The dtype of a result, as a function of the operands. observed.inc writes it as "?" (unknown),
// "=012" (the same as operands 0, 1 and 2; those from the tenth on are a, b, …), "promote",
// "promote_tensors", "Bool" (or another fixed dtype), "default" (standard); "-" where the result is
// no tensor, or one of the operands (out=); with "~" before it for floats_only, "asked|" for
// heeds_dtype.
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
  InnerAutocast cpu;
  InnerAutocast cuda;
  std::vector<DtypeRule> dtypes;  // by result
  std::vector<DimsRule> dims;
};

// Null for an overload that was not observed.
const Observed* observed(const c10::OperatorName& name);

// Its row as observed.inc has it, for people: what it reaches on CPU and on CUDA, dtypes,
// dimensions.
std::optional<std::array<std::string, 4>> observed_row(const std::string& overload);

enum class Group : uint8_t {
  none,
  identity,     // the elements of the first operand: maybe in another dtype, memory or layout
  dropout,      // the same in eval mode
  arithmetic,   // element by element, of two tensors that are promoted, or a tensor and a number
  convolution,  // transposed ones too
  product,      // of matrices
  recurrent,    // a layer of several products
  moving,       // only fills, or moves elements
  algebra,      // linear algebra whose name does not begin with `linalg_`
  question      // about a tensor; the answer is the same in every layout
};

enum class Memory : uint8_t {
  by_schema,      // nothing but what the schema says
  fresh,          // each result has memory of its own without gaps, whatever the operands are
  maybe_operand,  // a result may be an operand or a view of one, though the schema says it is new
  unwritten       // it is new, and nothing is written to it yet: `empty`
};

enum class Strides : uint8_t {
  unknown,
  kept,      // of operands that all have channels last, or all do not, the result is like them; it
             // has as many dimensions as the first
  viewed,    // a view, or a copy, of all elements in their order in memory
  permuted,  // a view of all elements, dimensions in another order
  parts,     // views along a dimension
  asked      // as the call says
};

struct Traits {
  const char* name;  // as in traits.inc: "relu", "prim::dtype"
  Group group;
  Memory memory;
  Strides strides;
  // By which name the `mkldnn::` operators with a fused activation know it; "onednn" where
  // PyTorch's fusion with oneDNN Graph alone does; else empty.
  const char* fused;
  // Whether PyTorch's executor observes the types of its operands, since one of its fusions takes
  // the operator.
  bool is_profiled;
};

// Of the node's operator. In-place forms have no traits here.
const Traits& traits_of(const torch::jit::Node* node);
const Traits& traits_of(c10::Symbol op);

// The same, and for an in-place form those of the operator that it is a form of.
const Traits& traits_in_place_or_not(const torch::jit::Node* node);
const Traits& traits_in_place_or_not(c10::Symbol op);

// Whether the tensor, or each in the list, has memory of its own without gaps.
bool is_fresh(const torch::jit::Value* result);

// Whether a result of the node may be an operand, or a view of one, though its schema says that it
// is new.
bool may_return_operand(const torch::jit::Node* node);

// The operands that an operator puts into the list or dictionary which is operand `container`, as
// elements or as containers of elements: that it can put in no others follows from its schema,
// which takes elements of any type. Nothing, where the schema does not tell; an empty list, where
// it only takes elements out or moves them.
std::optional<std::vector<size_t>> puts_into(const c10::FunctionSchema& schema, size_t container);

// Whether result `index` is a list that holds nothing but elements of the lists among the operands:
// its schema says so in the same way.
bool passes_elements_on(const c10::FunctionSchema& schema, size_t index);

}  // namespace jit_amp
