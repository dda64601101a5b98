// round_products: `x *= 0.1` in a reduced dtype rounds as in eager.
//
// Python's `x.mul_(0.1)` is `aten::mul_.Tensor` of a number, which is used as it is. TorchScript's
// is `aten::mul_.Scalar`, whose kernel (mul_ in aten/src/ATen/native/BinaryOps.cpp) makes it the
// first operand of a product: on the CPU that number is then rounded to x's dtype before the
// product is made, which is another product. Where x is of bfloat16 or float16 when the program
// runs, the product is made beside x and copied into it; `aten::mul.Scalar` has no such fault.
// Numbers that both dtypes hold stay.
//
// Not where a frozen module may round otherwise (optimize_numerics). Must run after: write_numbers,
// which makes such operators of a trace's.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether there were any.
bool round_products(torch::jit::Graph& graph);

}  // namespace jit_amp
