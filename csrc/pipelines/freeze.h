// freeze: from a lowered graph to one of stock operators.
//
// PyTorch's own freezing, which works on a whole module, stands in the middle
// (pipelines/modules.h): `freezing` comes before it, `deciding` and `legalizing` after it.
#pragma once

#include "pipelines/pipeline.h"

namespace jit_amp {

// From lowered to freezable: what PyTorch's freezing takes.
const std::vector<Pass>& freezing();

// From freezable to decided: composites in terms of operators with a policy, and what is known of
// each value. Reads `known_self`, `examples`, `check_inputs` and `target`; writes `inputs`,
// `facts`.
const std::vector<Pass>& deciding();

// From decided to stock. Reads `inputs`, `facts`, `examples`, `target`, and for the check of
// devices `has_casts`, `check_inputs` and `known_self`.
const std::vector<Pass>& legalizing();

// From lowered to freezable, for jit_amp.export: composites written out, and nothing else decided.
const std::vector<Pass>& exporting();

// From inlined to stock: what PyTorch's freezing and its optimisations made of a module without
// scopes.
const std::vector<Pass>& mending();

}  // namespace jit_amp
