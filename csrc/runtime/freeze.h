// freeze: a module whose weights are constants, of stock operators alone.
//
// Every kept method is lowered (pipelines/script.h) and put where PyTorch's freezing takes it,
// which makes its weights constants; then its graph is decided and legalized (pipelines/freeze.h).
// Constants are the frozen module's own, but for those that it writes to. What examples tell of
// forward's inputs is checked by the frozen module.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace jit_amp {

// What a frozen module takes and gives, where that is another dtype than its module does
// (passes/source/cast_io.h).
struct FreezeIo {
  c10::ScalarType dtype;
  std::vector<torch::jit::Stack> examples;  // as the module takes them
};

// What a frozen module is made for, besides its examples.
struct FreezeOptions {
  bool optimize_numerics = true;
  bool for_server = false;   // may have operators that only builds for x86 have
  bool check_inputs = true;  // else it has no check of them, and nothing is taken for granted
  std::optional<FreezeIo> io = std::nullopt;
};

// What PyTorch's freezing makes of a module without scopes, which stays as it is; its constants are
// its own (passes/freeze/own_constants.h).
torch::jit::Module frozen_by_pytorch(const torch::jit::Module& module,
                                     const std::vector<std::string>& preserved_attrs,
                                     const std::optional<FreezeIo>& io = std::nullopt);

// `examples` are stacks of arguments of forward, without self, as the frozen module takes them.
// Throws AutocastError for what cannot be said in stock operators. The given module stays as it is.
torch::jit::Module freeze(const torch::jit::Module& module,
                          const std::vector<std::string>& preserved_attrs,
                          const std::vector<torch::jit::Stack>& examples, FreezeOptions options);

// forward's graph as `deciding` leaves it, with the dialect's casts; its types say what is known of
// its values.
std::shared_ptr<torch::jit::Graph> known_graph(const torch::jit::Module& module,
                                               const std::vector<torch::jit::Stack>& examples);

}  // namespace jit_amp
