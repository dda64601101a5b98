// declare_interfaces: what a preserved module has behind an interface is declared as of its class.
//
// The methods of a frozen module take the parts of such a module out of it, and a file says how to
// by the class alone: an attribute whose type is an interface has none.
//
// Must run after PyTorch's freezing, on a module of jit_amp's own.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace jit_amp {

// Returns whether there was any.
bool declare_interfaces(const torch::jit::Module& module);

}  // namespace jit_amp
