// tell_aliases: makes results that may be an operand visible to AliasDb.
//
// Some operators return their operand itself where there is nothing to do, or a view of it, and
// their schemas say that they return a new tensor: dropout in eval mode, `type_as`, einsum,
// `atleast_2d`, `sum_to_size`. PyTorch's passes believe the schema: a write to such a result is
// dropped where nothing reads the result, and a cast of the operand is used again after the write.
//
// A result `r` of an operand `x`, that is written to or whose operand is, becomes
// `x if r is x else r`, which AliasDb takes for either.
//
// Preserved: everything that the graph does. Loops must be marked (core/loops.h). Must run before
// the first pass that eliminates dead code, or shares values.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether the graph changed.
bool tell_aliases(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
