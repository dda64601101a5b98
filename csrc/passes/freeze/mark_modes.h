// mark_modes: a cast under torch.no_grad() stays another one than the same cast outside.
//
// PyTorch makes one node of equal ones, in its freezing and again in its executor, also where one
// of them stands under no_grad and records nothing for autograd: whoever asks for the gradient of
// an input would not get that of the cast outside (torch/csrc/jit/passes/
// common_subexpression_elimination.cpp asks for no mode). So a cast inside a `with` that may change
// the mode gets an attribute, and `legalize` writes it in other words that mean the same
// (`set_apart`): with `memory_format` under no_grad and inference_mode, with `non_blocking`, which
// does nothing where the device stays, in other scopes.
//
// Only casts that autocast makes are marked: equal operators of the user's own are made one by
// PyTorch without jit_amp, too.
//
// Run after: lower. Run before: PyTorch's freezing, legalize.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// Returns whether a cast was marked.
bool mark_modes(std::shared_ptr<torch::jit::Graph>& graph);

// Writes an `aten::to` in other words, if the cast that it stands for is marked.
void set_apart(torch::jit::Node* to, const torch::jit::Node* cast);

}  // namespace jit_amp
