// channels_last: convolutions compute with channels last.
//
// oneDNN, PyTorch's convolutions on a CPU, computes in a layout of its own. Between it and the
// default layout each convolution converts its input, its weight and its result, and often takes
// longer for that than for the sums; between it and channels last it does not. A convolution
// computes with channels last if its weight is stored so, and pointwise operators, pooling and
// norms keep the layout that they are given, in branches too.
//
// Changed are the weights, which become copies with channels last, and what leaves such a chain of
// operators: there a result goes back to the layout that eager would have given it, which is that
// of the input of the chain. So values are the same up to the order of sums, and strides are
// eager's. An operator that is not known to keep layouts, a container, a view or the caller sees
// the default layout only. Where that cannot be said without losing what is written through a view,
// the graph stays as it is.
//
// Not preserved: where the input was given with channels last and a feature map inside has one
// channel or one pixel, eager's pointwise operators go on in the default layout, and the frozen
// module's strides after that are those of channels last.
//
// For modules that are frozen with target="server", because other engines' converters have been
// seen to misread such weights. Loops must be marked, and the graph must have no tasks.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool channels_last(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
