// ship: an artefact that PyTorch's own optimisers can take.
//
// oneDNN's fusion (torch/csrc/jit/codegen/onednn/defer_size_check.cpp) asks every user of a tensor
// whose size is read for its operator, and raises "Schema not found for node" where one has none: a
// list, a tuple, what is returned. The size of such a tensor is read off an alias of it.
//
// Must run last: it undoes nothing, but others would.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

void ship(torch::jit::Graph& graph);

}  // namespace jit_amp
