// widen_products: products in float32 where the processor has no instructions for the dtype.
//
// A processor with bfloat16's instructions makes exact products of rounded operands, adds them up
// in float32, and rounds once. One without them can do the same in float32, at float32's speed:
// `linear(x.to(float32), w.to(float32)).to(bfloat16)`. PyTorch's own emulation takes up to fifty
// times as long. So a product, a convolution, a recurrent layer or an attention stands in a branch:
// where the processor emulates the dtype its operands are widened and its result is rounded, with
// the dtype that it had and a rounding fewer than before.
//
// Small linear layers stay as they are; others ask how many rows there are, because for few rows
// the time goes to reading the weight, which is shorter as it is.
//
// Which processor will run the frozen module is not known when it is frozen: the graph asks, and
// after pack_weights the module does so once, when it is loaded. Weights are widened then.
//
// For modules that are frozen with target="server". The graph must have no tasks. Must run after
// fuse_pointwise, which takes a layer with what follows it; what that does on such a processor is
// widened here.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool widen_products(torch::jit::Graph& graph);

}  // namespace jit_amp
