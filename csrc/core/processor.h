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

// Whether the processor computes products in bfloat16 and PyTorch's kernel of attention does not:
// it takes MKL's products, which on AMD's processors are float32's. A graph of stock operators
// cannot ask that; pack_weights puts in what `jit_amp/_freeze/packed.py` has found out. Without it
// the answer is no.
torch::jit::Value* is_slow_kernel(torch::jit::Graph& graph);
// Whether a node is that question.
bool asks_of_kernel(const torch::jit::Node* node);

// The opposite of is_supported: whether the processor emulates the dtype.
torch::jit::Value* is_emulated(torch::jit::Graph& graph, c10::ScalarType dtype);

}  // namespace jit_amp
