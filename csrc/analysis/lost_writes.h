// lost_writes: what the source of a program writes to, and whether its graphs do.
//
// PyTorch's compiler drops a write to what it takes for a new tensor that nobody reads
// (jit_amp/_source/lost_writes.py says which it is wrong about). An analysis: graphs do not change.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/module.h>

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/places.h"

namespace jit_amp {

// File and number of the line.
using SourceLine = std::pair<std::string, size_t>;
// Where it begins and ends in the text.
using SourceSpan = std::pair<size_t, size_t>;

// Of one function that PyTorch has compiled.
struct CompiledFunction {
  std::string qualified_name;
  std::map<std::string, c10::TypePtr> arguments;
  std::set<SourceText> texts;  // that it was compiled from; none where no node is left
  // The ranges of the text, at a line, of nodes that write to a tensor.
  std::map<SourceLine, std::vector<SourceSpan>> writes;
  // Of those that the compiler makes of `**=`, `&=`, `|=`, `^=`.
  std::map<SourceLine, std::vector<SourceSpan>> anew;
};

// Of a function, or of a module's functions, and of all that they run. Modules that are frozen are
// left out: their graphs are not what the text was compiled to.
// Throws AutocastError of a graph that calls what is not there.
std::vector<CompiledFunction> compiled_functions(torch::jit::GraphFunction& function);
std::vector<CompiledFunction> compiled_functions(const torch::jit::Module& module);

// The type of an attribute or a constant of a module or an object; null where it has none.
c10::TypePtr attribute_type(const c10::TypePtr& type, const std::string& name);

}  // namespace jit_amp
