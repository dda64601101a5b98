// freeze: a module whose weights are constants, of stock operators alone.
//
// What is done to the module, in order, are the tables of pipelines/modules.h. Constants are the
// frozen module's own, but for those that it writes to. What examples tell of forward's inputs is
// checked by the frozen module.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "pipelines/modules.h"

namespace jit_amp {

// What a frozen module is made for, besides its examples.
struct FreezeOptions {
  Target target = Target::portable;
  bool check_inputs = true;  // else it has no check of them, and nothing is taken for granted
  std::optional<FreezeIo> io = std::nullopt;
};

// What PyTorch's freezing makes of a module without scopes, which stays as it is.
torch::jit::Module frozen_by_pytorch(const torch::jit::Module& module,
                                     const std::vector<std::string>& preserved_attrs,
                                     const std::optional<FreezeIo>& io = std::nullopt);

// What is left to do with it, after PyTorch's own optimisations. Throws AutocastError where it asks
// about autocast on a device that is not known.
void mend_frozen_by_pytorch(const torch::jit::Module& frozen, Target target);

// `examples` are stacks of arguments of forward, without self, as the frozen module takes them.
// Throws AutocastError for what cannot be said in stock operators. The given module stays as it is.
torch::jit::Module freeze(const torch::jit::Module& module,
                          const std::vector<std::string>& preserved_attrs,
                          const std::vector<torch::jit::Stack>& examples, FreezeOptions options);

// Moves the weights of what was frozen for servers to a submodule that `script_packed` makes
// (passes/server/pack_weights.h). Where it asks the processor nothing, it stays as it is.
void pack(const torch::jit::Module& frozen, const std::vector<torch::jit::Stack>& examples,
          const ScriptPacked& script_packed);

// forward's graph as `deciding` leaves it, with the dialect's casts; its types say what is known of
// its values.
std::shared_ptr<torch::jit::Graph> known_graph(const torch::jit::Module& module,
                                               const std::vector<torch::jit::Stack>& examples);

}  // namespace jit_amp
