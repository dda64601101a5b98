// processor: how a graph asks the processor at hand, which is not known when it is frozen.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <optional>

namespace jit_amp {

// The operator of PyTorch's that tells whether oneDNN computes in the dtype; none for dtypes that
// every processor computes in.
std::optional<c10::Symbol> question_about(c10::ScalarType dtype);

// Its answer, as a value of the graph: asked once, before everything else.
torch::jit::Value* is_supported(torch::jit::Graph& graph, c10::ScalarType dtype);

// The opposite: whether the processor emulates the dtype.
torch::jit::Value* is_emulated(torch::jit::Graph& graph, c10::ScalarType dtype);

}  // namespace jit_amp
