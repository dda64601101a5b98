// lost_writes: what the source of a program writes to, and whether its graphs do.
//
// PyTorch's compiler drops a write to what it takes for a new tensor that nobody reads
// (jit_amp/_lost_writes.py says which it is wrong about). An analysis: graphs do not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <utility>

namespace jit_amp {

// File, number of the first line, text.
using SourceText = std::tuple<std::string, size_t, std::string>;
// File and number of the line.
using SourceLine = std::pair<std::string, size_t>;

using SourcesAndWrites = std::pair<std::set<SourceText>, std::set<SourceLine>>;

// The texts that a function, or a module's functions, were compiled from, their callees' included,
// and the places at which their graphs write to a tensor. A function without a node shows no text.
// Modules that are frozen are left out: their graphs are not what the text was compiled to.
// Throws AutocastError of a graph that calls what is not there.
SourcesAndWrites sources_and_writes(torch::jit::GraphFunction& function);
SourcesAndWrites sources_and_writes(const torch::jit::Module& module);

}  // namespace jit_amp
