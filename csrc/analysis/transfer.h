// transfer: what an operator gives, from what is known of its operands (the transfer functions of
// facts.h).
//
// For an operator of ATen the answer is its row in observed.inc: the dtype of an operand, type
// promotion or one dtype, and whether the result has dimensions; a device that the call gives
// stands, and a dtype where the row says so. For `jit_amp::cast` it is the meaning of the cast. Of
// what has no row nothing is known.
//
// Looks at one node, and changes nothing.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/facts.h"

namespace jit_amp {

// Whether the operator raises where tensors among its operands are on different devices: products,
// and lookups in a table. Arithmetic takes one without dimensions from the CPU, and an index may be
// there too.
bool takes_one_device(const torch::jit::Node* node);

// The result of a `jit_amp::cast`.
AbstractValue cast_result(const torch::jit::Node* cast, const Facts& facts);

// A result of an operator of ATen that is a tensor.
Fact tensor_result(torch::jit::Node* node, const c10::FunctionSchema& schema, size_t index,
                   const Facts& facts);

// A result that is a list of tensors: the parts of one, or what lists are made of.
AbstractValue list_result(torch::jit::Node* node, const c10::FunctionSchema& schema, size_t index,
                          const Facts& facts);

}  // namespace jit_amp
