// join_weights: the weights of a recurrent network that cuDNN runs, in one piece.
//
// cuDNN takes all weights of an LSTM, a GRU or an RNN as one tensor. PyTorch's modules keep them as
// views of one, for this (torch/nn/modules/rnn.py, `flatten_parameters`); constants of a frozen
// module, which were cast or copied, have memory each, and would be put together at every call. So
// they become views of one tensor here, with the same values. torch.jit.save keeps it so.
//
// Nothing else changes. Left as they are: what cuDNN does not take, what the graph writes to, and
// weights that anything but such networks takes, or that are in one piece with others already. Must
// run after: own_constants, so that no tensor of the user's is moved.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace jit_amp {

// `methods`: the graphs of all methods of the frozen module.
void join_weights(const std::vector<std::shared_ptr<torch::jit::Graph>>& methods);

}  // namespace jit_amp
