// script: from a function's source graph to what its calls run.
//
// The same for calls in process and for an artefact, as far as `lowered`: there is one meaning of
// autocast. Then in process the graph is made ready for our own interpreter.
#pragma once

#include "pipelines/pipeline.h"

namespace jit_amp {

// From source to lowered. Reads `function`, `self`, `product` and `entry`.
const std::vector<Pass>& lowering();

// From lowered to runnable.
const std::vector<Pass>& running();

// From source to runnable where gradients are recorded: the scopes are entered as the graph runs.
const std::vector<Pass>& recording();

}  // namespace jit_amp
