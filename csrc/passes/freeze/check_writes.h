// check_writes: refuses an in-place write that PyTorch would lose from a frozen module.
//
// What a loop gives is what went in, if it runs no times. PyTorch's alias analysis does not know
// that: where nothing else reads such a result, its dead code elimination drops a write to it, and
// with it a change to the caller's tensor. In process our graphs say it (core/loops.h). A frozen
// module is PyTorch's own, which eliminates dead code when it loads: so the write is refused. Found
// by doing it: what goes from an unmarked copy, and stays in a marked one, would be lost.
//
// Nothing changes. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Throws AutocastError.
void check_writes(const std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
