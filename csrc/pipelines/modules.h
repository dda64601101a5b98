// modules: a whole module on its way to a frozen one, as tables.
//
// Their passes take a module of jit_amp's own with the methods that it will keep. Two rows are
// loops over these: `lower_methods` and `decide_methods` run the tables of pipelines/script.h and
// pipelines/freeze.h for each of them, and so does `legalize_methods`. PyTorch's own freezing,
// which makes constants of the weights, is the row `freeze_module`.
#pragma once

#include <ATen/core/stack.h>
#include <torch/csrc/jit/api/module.h>

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "pipelines/pipeline.h"

namespace jit_amp {

// What a frozen module takes and gives, where that is another dtype than its module does
// (passes/source/cast_io.h).
struct FreezeIo {
  c10::ScalarType dtype;
  std::vector<torch::jit::Stack> examples;  // as the module takes them
};

// A method that the frozen module keeps, and where.
struct KeptMethod {
  std::string path;  // of its module
  std::string name;
};

// forward, and what the preserved attributes name: methods, or submodules with all of theirs.
std::vector<KeptMethod> kept_methods(const torch::jit::Module& module,
                                     const std::vector<std::string>& preserved_attrs);

// Makes the submodule of pack_weights of weights and their plans. It is not to keep the lists.
using ScriptPacked =
    std::function<torch::jit::Module(std::vector<at::Tensor>, std::vector<std::vector<int64_t>>)>;

// All that the passes of a pipeline for a module read and write.
struct ModuleContext {
  torch::jit::Module module;  // jit_amp's own: a copy at first, frozen in the end
  torch::jit::Module given;   // what it was made of, which stays as it is
  std::vector<std::string> preserved_attrs;
  std::vector<KeptMethod> kept;
  std::vector<torch::jit::Stack> examples = {};  // of forward, without self
  Target target = Target::portable;
  bool check_inputs = true;  // else it has no check of them, and nothing is taken for granted
  std::optional<FreezeIo> io = std::nullopt;
  ScriptPacked script_packed = nullptr;
  std::vector<Context> methods = {};  // one for each graph; forward's is the first
  Phase phase = Phase::source;
};

using ModulePass = PassOf<ModuleContext>;

// The graphs of the methods that are kept, each once.
std::vector<std::shared_ptr<torch::jit::Graph>> graphs_of(const ModuleContext& context);

// From source to decided: what jit_amp.freeze does up to the casts. Writes `methods`.
const std::vector<ModulePass>& freezing_weights();

// From decided to stock. Reads `methods`.
const std::vector<ModulePass>& finishing();

// For servers, on a frozen module; `kept` is forward. Reads `examples` and `script_packed`.
const std::vector<ModulePass>& packing();

// The whole of a module that has no scopes: PyTorch's freezing, and what it gets wrong.
// `mending` in pipelines/freeze.h comes after PyTorch's own optimisations of what this makes.
const std::vector<ModulePass>& freezing_plain();

// Throws as PyTorch does, and AutocastError for what cannot be said in stock operators.
void run_pipeline(const std::vector<ModulePass>& pipeline, ModuleContext& context);

}  // namespace jit_amp
