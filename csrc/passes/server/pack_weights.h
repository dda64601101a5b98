// pack_weights: weights in the form that the processor at hand computes with, the large ones held
// once.
//
// oneDNN copies a plain weight into a layout of its own at each call, which takes an eighth of the
// time of a ResNet-50 and half of that of a small linear layer. Which layout is best depends on the
// shape of the input. A processor that emulates the dtype computes in float32 (widen_products.h),
// and would widen a plain weight at each call. What is packed cannot be saved, and what is right
// for one processor is wrong for another.
//
// So the weights of the operators that fuse_pointwise and widen_products have made move from
// constants of the graph to a submodule, `jit_amp/_freeze/packed.py`, which saves them plain. It
// asks the processor when it is made or loaded, answers the graph's questions about it, and has
// each weight in one form: packed, for the input's shape in the example, or widened, or plain. A
// convolution of another shape, and what takes neither form, has its weight unpacked when it is
// called.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <vector>

namespace jit_amp {

// A weight, and how it is packed: for a convolution padding, stride, dilation, groups and the
// input's sizes, for a linear layer the number of rows; nothing where it is not.
struct Packable {
  at::Tensor weight;
  std::vector<int64_t> plan;
};

// The weights of forward that the submodule holds. To learn the shapes forward runs once with the
// example, if there is one, without what it prints, on copies of all that it may write to; the
// caller keeps the random state. It does not where it has operators that are not PyTorch's, which
// may do anything; then, and where the example raises, no weight has a plan.
std::vector<Packable> packable_weights(const torch::jit::Module& frozen,
                                       const std::optional<torch::jit::Stack>& example);

// Whether forward asks the processor anything.
bool asks_processor(const torch::jit::Module& frozen);

// Makes forward take the weights from `packed`, a scripted _packed.Packed of `packable`, which
// becomes a submodule: `_packed`, or with more underscores where that name is taken. Must be done
// before the first call. `packable` is empty afterwards, so that the submodule alone holds them.
void use_packed(torch::jit::Module frozen, std::vector<Packable>& packable,
                const torch::jit::Module& packed);

// Has each such submodule of a module, whose lists are the caller's own, give plain weights, and
// say that the processor is any.
void unpack(const torch::jit::Module& module);

}  // namespace jit_amp
