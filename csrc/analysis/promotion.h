// promotion: PyTorch's type promotion, of operands of which not all is known.
//
// PyTorch is asked (at::native::result_type), and no rule of it is written here. Where an operand
// may have several dtypes, or may have dimensions or not, every choice is asked, and the result is
// all that can come of it.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <vector>

#include "analysis/abstract_value.h"

namespace jit_amp {

// An operand of type promotion: a tensor, or a number.
struct Promoted {
  Fact tensor;
  std::optional<c10::ScalarType> number;
};

// Any dtype, where nothing better is known or the dtypes have no promotion.
DTypes promote(const std::vector<Promoted>& operands);

// The dtype of a number as type promotion sees it, by its type; nothing for what is no number.
std::optional<c10::ScalarType> dtype_of_number(const torch::jit::Value* value);

// What torch.get_default_dtype() may be.
DTypes default_dtypes();

}  // namespace jit_amp
