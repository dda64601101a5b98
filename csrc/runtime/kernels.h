// kernels: what the operators of the dialect (core/dialect.h) do when a graph runs.
#pragma once

#include <torch/csrc/jit/runtime/interpreter.h>

namespace jit_amp {

// Runs `code` on the stack's last `inputs` values, on this thread until it is done, whatever it
// waits for: a state that an interpreter itself entered would be left on whichever thread it goes
// on in.
void run_here(const torch::jit::Code& code, torch::jit::Stack& stack, size_t inputs);

}  // namespace jit_amp
