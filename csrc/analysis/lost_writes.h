// lost_writes: whether writes that a program's source has are in its graphs.
//
// PyTorch's compiler drops a write to what it takes for a new tensor that nobody reads
// (jit_amp/_lost_writes.py says which it is wrong about). An analysis: graphs do not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace jit_amp {

// Files and lines.
using Places = std::vector<std::pair<std::string, size_t>>;

// The numbers of those places at which nothing that the functions run, their callees included,
// writes to a tensor; none where there is no autocast scope in them.
std::vector<size_t> lost_writes(const std::vector<torch::jit::GraphFunction*>& functions,
                                const Places& places);

}  // namespace jit_amp
