// freeze: a module as an artefact of stock operators.
//
// flatten, scopes and lower on every kept method; PyTorch's freezing; batch norms and arithmetic
// with numbers folded into conv and linear while the weights still are float32; then decompose,
// facts and seal, after which the weights are constants in the dtype that they are used in; then
// ship. Constants are the artefact's own, but for those that it writes to. Facts are taken from
// examples only where seal can check every input of forward that they rest on.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>

#include <string>
#include <vector>

namespace jit_amp {

// `examples` are stacks of arguments of forward, without self. Throws AutocastError for what cannot
// be exported. The given module stays as it is. `known`, if given, gets forward's graph as it was
// before casts were dropped, with what the examples told of its values.
torch::jit::Module freeze(const torch::jit::Module& module,
                          const std::vector<std::string>& preserved_attrs,
                          const std::vector<torch::jit::Stack>& examples, bool optimize_numerics,
                          std::shared_ptr<torch::jit::Graph>* known = nullptr);

}  // namespace jit_amp
