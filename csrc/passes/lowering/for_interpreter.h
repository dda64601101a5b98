// for_interpreter: a lowered graph as PyTorch's interpreter can run it, without its executor.
//
// The marks of loops (core/loops.h) go. Two things of PyTorch's interpreter are kept from changing
// what the graph does:
//
//   - It runs a node whose only result has one use when it comes to that use (can_emit_inline.h).
//     By then the use's other operands may have been moved away, and with them what a block of the
//     node reads. `jit_amp::block_done` after each loop and each branch prevents that.
//   - It hands a forked task to an executor of PyTorch's choice, which differentiates parts of the
//     task itself. So a task becomes one `jit_amp::scoped_effect`, which runs what was in it. Not a
//     task that forks or waits itself, or calls a method that may: it would keep a thread waiting.
//     There only `addmm` is kept from being split (passes/quirks/optimizer/keep_addmm.h).
//
// Preserved: everything that the graph does.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

namespace jit_amp {

// Returns whether the graph changed.
bool for_interpreter(torch::jit::Graph& graph);

}  // namespace jit_amp
