// keep_statistics: running statistics that a norm updates stay state of the frozen module.
//
// batch_norm and instance_norm write to them in training, and their schemas do not say so.
// PyTorch's freezing takes them for constants, and torch.jit.save writes constants that are equal
// once (torch/csrc/jit/serialization/python_print.cpp): in what is loaded, a mean of zeros and a
// bias of zeros are one tensor, and each call changes the bias. So they become buffers of the
// module whose method it is, `_statistics` with a number.
//
// Preserved: everything that the graph does, and who else has these tensors. Not seen: norms in
// tasks.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// `self`: what the graph's first input is. To be done when it is frozen. Returns whether there were
// any.
bool keep_statistics(torch::jit::Graph& graph, torch::jit::Module self);

}  // namespace jit_amp
