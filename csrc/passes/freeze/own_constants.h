// own_constants: a frozen module's constants are its own.
//
// PyTorch's freezing leaves constants that are the given module's own tensors: what is loaded or
// trained into the module later would be in one half of the frozen module, that which is not cast.
// Tensors in constant lists, tuples and dictionaries are such constants, too. What the graph writes
// to stays what it is, to whoever else has it.
//
// Constants of different dtypes that share their memory, a complex tensor and its imaginary part,
// get memory of their own: torch.jit.save writes it once, for one of the dtypes.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <vector>

namespace jit_amp {

// `methods`: the graphs of all methods of the frozen module. `module`: what it was made of.
void own_constants(const std::vector<std::shared_ptr<torch::jit::Graph>>& methods,
                   const torch::jit::Module& module);

}  // namespace jit_amp
