// fuse_pointwise: an activation is computed in the convolution or linear layer before it.
//
// `relu(conv2d(x, weight))` writes the convolution's result to memory and reads it again.
// PyTorch's `mkldnn::_convolution_pointwise` and `_linear_pointwise`, which it has for
// torch.compile and in every build for x86, apply the activation before they write. The result is
// rounded once where it was rounded twice, and has the same dtype.
//
// Layers without an activation become these operators too: they take weights that are packed
// (pack_weights.h).
//
// Which processor will run the artefact is not known when it is frozen: it asks
// `mkldnn::_is_mkldnn_bf16_supported` first, and does what it did before where the answer is no. So
// it does for an input without a batch, and for one that requires grad: these operators have no
// derivative.
//
// There a `silu` takes an alias of a linear layer's result: where it takes the result itself,
// oneDNN's fusion makes a product of it (torch/csrc/jit/codegen/onednn/decompose_silu.cpp), and
// raises "bad optional access" on a product in a branch that the first call does not take.
//
// Convolutions are those that channels_last has made to give channels last: fused ones always do,
// where their weight is packed. So it must run after channels_last. For artefacts that are frozen
// with target="server": phones do not have these operators.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool fuse_pointwise(torch::jit::Graph& graph);

}  // namespace jit_amp
