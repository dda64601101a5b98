// share_conditions: what is asked before each layer is written once.
//
// Whether a layer can be computed by a fused operator is asked of its input when it runs
// (fuse_pointwise.h): five questions or more, the same for each layer of a kind. When PyTorch reads
// a file's code, it prepares an error message for each value that only one side of a branch
// defines, and each message holds a copy of the file's code (torch/csrc/jit/frontend/
// ir_emitter.cpp). So the memory and the time of loading grow with the square of the number of
// layers.
//
// A condition that stands in several places of forward becomes a method of the module, `_fits0`,
// `_fits1` and so on, and is called there. PyTorch's executors inline it again. Moved is what only
// asks: operators without side effects that give no tensors, without other branches, for one bool.
#pragma once

#include <torch/csrc/jit/api/module.h>

namespace jit_amp {

// Changes forward of the frozen module, whose type is its own. Must be done before the first call.
void share_conditions(torch::jit::Module frozen);

}  // namespace jit_amp
