// fuse_pointwise: what follows a convolution or linear layer is computed in it.
//
// `relu(conv2d(x, weight))` writes the convolution's result to memory and reads it again.
// PyTorch's `mkldnn::_convolution_pointwise` and `_linear_pointwise`, which it has for
// torch.compile and in every build for x86, apply the activation before they write. Convolutions
// without groups also add another tensor, as at the end of a residual block, where stride and
// padding are such that the result is as high and as wide as the input. The result is rounded once
// where it was rounded twice or more, and has the same dtype.
//
// Layers without an activation become these operators too: they take weights that are packed
// (pack_weights.h).
//
// Linear layers of at most 64 x 64 do what they did where they are called with a few rows, and
// those of less than 32 x 32 always: there oneDNN takes longer to be set up than to compute.
//
// Which processor will run the frozen module is not known when it is frozen: it asks
// `mkldnn::_is_mkldnn_bf16_supported` first, and does what it did before where the answer is no. So
// it does for an input without a batch, for what is added in another size or dtype, for what is
// added to a single pixel, which torch 2.11's oneDNN refuses ("could not create a memory"), and
// where anything requires grad: these operators have no derivative.
//
// What it did before is said otherwise for the sake of oneDNN's own fusion, which users may have
// switched on. It raises "bad optional access" on arithmetic in a branch that the first call does
// not take (torch/csrc/jit/codegen/onednn/prepare_binary.cpp), and makes a product of the `silu` of
// a linear layer's result (decompose_silu.cpp). So a `silu` takes an alias of the result, and a sum
// is a difference, of which it knows nothing.
//
// Convolutions are those that channels_last has made to give channels last: fused ones always do,
// where their weight is packed. So it must run after channels_last. For modules that are frozen
// with target="server": phones do not have these operators. The graph must have no tasks.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool fuse_pointwise(torch::jit::Graph& graph);

}  // namespace jit_amp
