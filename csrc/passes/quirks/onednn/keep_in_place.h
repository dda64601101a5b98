// keep_in_place: arithmetic in place that oneDNN's fusion does not make functional.
//
// That fusion makes `add` of `add_` where it finds that nobody else sees what is written
// (torch/csrc/jit/codegen/onednn/interface.cpp). `x.add_(y)` keeps the dtype of x, and `add`
// promotes: where x is bfloat16 and y float32, the result is of another dtype. An alias of x, which
// `add_` writes to in its place, counts as something else that sees it: the fusion then leaves
// `add_` alone. So where the dtypes of the two are
// not known to be the same, `add_`, `mul_` and `pow_` take such an alias (`aten::alias`), and who
// takes x later takes the result. oneDNN's own tensors, in what was optimised before for this
// machine, have no aliases, and no fusion takes them.
//
// Preserved: values and dtypes, which the fusion would change. Loops must be marked; no pass that
// takes views away may run later.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool keep_in_place(torch::jit::Graph& graph, const Facts& facts);

}  // namespace jit_amp
