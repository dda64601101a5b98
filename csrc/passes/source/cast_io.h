// cast_io: a method that takes and gives floating-point tensors of one dtype, for
// freeze(io_dtype=).
//
// Results that are floating point, but for float64, are cast to the dtype. A tensor that is given
// in the dtype is cast to what the method takes: to the dtype of the examples there, or, where
// there are none, to that of all weights. Everything else stays. Casts are as
// passes/source/cast_tensors.h makes them; explain knows them by their files, "<jit_amp io_dtype of
// inputs>" and "<jit_amp io_dtype of results>".
//
// Changes source graphs. Must run after calls are inlined: those of the method itself are to have
// what they had.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <vector>

namespace jit_amp {

struct IoDtype {
  c10::ScalarType dtype;
  std::optional<c10::ScalarType> of_weights = std::nullopt;
};

// The floating-point dtype of all parameters, if they have one; none if that is float64.
std::optional<c10::ScalarType> dtype_of_weights(const torch::jit::Module& module);

// `examples` are as the method takes them, without self. Returns whether the graph has changed.
bool cast_io(const std::shared_ptr<torch::jit::Graph>& graph, const IoDtype& io,
             const std::vector<torch::jit::Stack>& examples);

}  // namespace jit_amp
