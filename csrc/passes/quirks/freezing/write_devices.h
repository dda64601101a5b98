// write_devices: lists and dictionaries of devices that are attributes, written into the graph.
//
// PyTorch's freeze_module raises "Cannot inspect value of type Device" where an attribute is a list
// or a dictionary with a device in it, used or not (aten/src/ATen/core/ivalue.cpp, getSubValues).
// Where nothing writes to it, the graphs make it of constants instead of reading it, and the
// attribute becomes empty. Where something does, nothing changes, and freezing refuses.
//
// Must run before PyTorch's freezing, on a module of our own.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <utility>
#include <vector>

namespace jit_amp {

// `graphs`: of the methods that will be kept, flat, each with the module that it runs on.
// Returns whether there was any.
bool write_devices(
    const torch::jit::Module& module,
    const std::vector<std::pair<std::shared_ptr<torch::jit::Graph>, torch::jit::ObjectPtr>>&
        graphs);

}  // namespace jit_amp
