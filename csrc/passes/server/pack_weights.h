// pack_weights: weights in the layout that oneDNN computes with, made once.
//
// oneDNN copies a plain weight into a layout of its own at each call, which takes an eighth of the
// time of a ResNet-50 and half of that of a small linear layer. Which layout is best depends on the
// shape of the input. What is packed cannot be saved.
//
// So the weights of the operators that fuse_pointwise has made move from constants of the graph to
// a submodule, `jit_amp/_packed.py`, which saves them plain and packs them when it is made or
// loaded, for the input's shape in the example. A call with another shape takes the plain weight.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <vector>

namespace jit_amp {

// A weight, and how it is packed: for a convolution padding, stride, dilation, groups and the
// input's sizes, for a linear layer the number of rows.
struct Packable {
  at::Tensor weight;
  std::vector<int64_t> plan;
};

// The weights of forward that can be packed; none where the example raises. forward runs once with
// the example, without what it prints, on copies of all that it may write to; the caller keeps the
// random state. None where it has operators that are not PyTorch's, which may do anything.
std::vector<Packable> packable_weights(const torch::jit::Module& frozen,
                                       const torch::jit::Stack& example);

// Makes forward take the weights from `packed`, a scripted _packed.Packed of `packable`, which
// becomes a submodule: `_packed`, or with more underscores where that name is taken. Must be done
// before the first call.
void use_packed(torch::jit::Module frozen, const std::vector<Packable>& packable,
                const torch::jit::Module& packed);

// Has each such submodule of a module, which is the caller's own, give plain weights for the packed
// ones.
void unpack(const torch::jit::Module& module);

}  // namespace jit_amp
