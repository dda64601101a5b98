// script: from a function's source graph to what its calls run.
//
// The same for calls in process and for a frozen module, as far as `lowered`: there is one meaning
// of autocast. Then in process the graph is made ready for PyTorch's interpreter. Or the flat graph
// enters its scopes as it runs (passes/lowering/enter_scopes.h says when).
#pragma once

#include "pipelines/pipeline.h"

namespace jit_amp {

// From source to flat. Reads `function`, `self`, `destination` and `target`; writes `reads`.
const std::vector<Pass>& flattening();

// From flat to lowered. Reads `destination` and `entry`; writes `scopes`.
const std::vector<Pass>& lowering();

// From lowered to runnable.
const std::vector<Pass>& running();

// From flat to runnable, with scopes that are entered as the graph runs.
const std::vector<Pass>& entering();

}  // namespace jit_amp
