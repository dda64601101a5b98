// reference: a lowered program beside eager.
//
// The flat graph with its scopes entered as it runs (passes/lowering/enter_scopes.h) is eager by
// construction: PyTorch's own autocast does what it does. With JIT_AMP_VERIFY=1, as in all tests, a
// lowered graph is run beside it once, on a call's own arguments, and has to give the same, bit for
// bit. Only what can be run twice is: no writes, no random numbers, no Python, nothing printed, no
// operators of libraries, of which nothing is known.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <string>
#include <vector>

namespace jit_amp {

// Whether running the graph once more changes nothing and gives the same.
bool is_repeatable(torch::jit::Graph& graph);

// Throws std::logic_error, which is a fault of ours, where the results are not the same: structure,
// dtypes, shapes, values. `name` is the program's.
void check_same(const std::vector<c10::IValue>& lowered, const std::vector<c10::IValue>& reference,
                const std::string& name);

}  // namespace jit_amp
