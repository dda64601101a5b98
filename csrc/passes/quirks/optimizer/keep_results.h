// keep_results: results that are different tensors in eager stay different ones.
//
// PyTorch makes one node of equal ones, in its freezing and again in its executor, but for two that
// both are results: who writes to one must not change the other
// (torch/csrc/jit/passes/common_subexpression_elimination.cpp). It asks what are results before it
// begins. Where the first of three equal nodes is none and the others are, it makes each of them
// the first, and so one tensor of two results.
//
// `mark_results` gives nodes of results an attribute before PyTorch's freezing, so that none is
// made one with what is no result; `unmark_results` takes it away. `keep_results` then does what
// PyTorch would, with what are results by then: what is equal and left are results, and PyTorch's
// executor leaves them alone. It changes nothing where there are no such results.
//
// Preserved: everything that the graph computes.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

namespace jit_amp {

// All return whether the graph changed.
bool mark_results(std::shared_ptr<torch::jit::Graph>& graph);
bool unmark_results(torch::jit::Graph& graph);
// Must run after everything that makes nodes equal.
bool keep_results(std::shared_ptr<torch::jit::Graph>& graph);

}  // namespace jit_amp
