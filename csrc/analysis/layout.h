// layout: whether the elements of a tensor lie in memory without gaps, and none twice.
//
// A conversion to another dtype keeps the strides of such a tensor. Of others, a slice of columns
// or what is expanded, it makes a tensor with strides of its own; and by strides ATen chooses the
// kernel that computes with it, so results differ in their last bits. Who moves a conversion past a
// view, or takes one out, asks here first.
//
// An analysis: it looks at a value and at what it is made of, and changes nothing.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

enum class Layout {
  any,        // nothing is known
  dense,      // without gaps, each element once; the dimensions may be in any order
  contiguous  // and in the order of rows
};

// Of a tensor, or of each tensor in a list.
Layout layout_of(const torch::jit::Value* value);

}  // namespace jit_amp
