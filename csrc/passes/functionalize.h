// functionalize: an activation in place makes a new tensor where oneDNN's fusion needs its type.
//
// That fusion makes `relu` of every `relu_` and asks for the types of its operands and result.
// PyTorch's executor has seen the result's only if an operator takes it that the executor observes;
// otherwise, as before an upsampling or a view, the fusion fails on a reduced dtype with "could not
// add op to the graph". The results of operators that make new tensors it observes always. So an
// activation in place becomes one of these where nothing else would have its result observed, on a
// CPU and in floating point, and where PyTorch's own RemoveTensorMutation finds that nothing but
// its result sees what it writes.
//
// Preserved: values and dtypes. A tensor more is allocated while it runs. Loops must be marked.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool functionalize(const std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

}  // namespace jit_amp
