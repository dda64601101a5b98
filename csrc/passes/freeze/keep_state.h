// keep_state: what a frozen module writes to stays state of it.
//
// PyTorch's freezing takes for constants what it does not see written: running statistics, which
// batch_norm and instance_norm write to in training though their schemas do not say so. And traces
// have what their module holds in lists as constants. torch.jit.save writes constants that are
// equal once (torch/csrc/jit/serialization/python_print.cpp): in what is loaded,
// a mean of zeros and a bias of zeros are one tensor, and each call changes the bias. So they
// become attributes of the module whose method it is, `_state` with a number; tensors are buffers.
//
// Preserved: everything that the graph does, and what else shares these tensors. Not seen: what
// tasks write.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// `self`: what the graph's first input is. To be called when it is frozen. Returns whether there
// was any.
bool keep_state(const std::shared_ptr<torch::jit::Graph>& graph, torch::jit::Module self);

}  // namespace jit_amp
