// widen: what stays in float32 is given float32.
//
// A function that runs with autocast off, because a Precision says so, may be called with tensors
// in bfloat16 and float16. These are cast to float32 before anything else is done, as
// passes/source/cast_tensors.h does it. So does jit_amp/_precision/in_float32.py, `widened`, in
// eager, and there in objects too.
//
// Changes source graphs, before their calls are inlined or after.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include "core/ignored.h"

namespace jit_amp {

// Casts the inputs of the graph.
void widen_inputs(torch::jit::Graph& graph);

// Casts its results, behind everything else; those in objects stay. Throws AutocastError: a result
// whose type is known only when it runs.
void widen_results(torch::jit::Graph& graph);

// Puts a disabled scope around each operator and call in the block that the lines have, and around
// each operator of the names, and casts what it is given. What writes to a tensor stays as it is,
// and so do the views that it writes to; of operators that are kept by their names, all views.
// `pattern` is wrap's.
void widen_kept(torch::jit::Block* block, torch::jit::Graph& pattern, const KeptParts& kept);

}  // namespace jit_amp
