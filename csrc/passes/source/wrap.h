// wrap: a whole function inside autocast scopes.
//
// Puts `with torch.autocast(...):` around everything that a source graph does, as if its author had
// written it there. Decorators, scopes around a whole model and functions that ignore autocast all
// become that, before any other pass: flatten, saving and exporting then know nothing of them. So
// do `torch.no_grad()` and its like, and what casts inputs or results to float32.
//
// Changes the graph that it is given, which must belong to the caller alone.
#pragma once

#include <torch/csrc/jit/api/module.h>
#include <torch/csrc/jit/ir/ir.h>

#include <optional>
#include <string>
#include <vector>

namespace jit_amp {

struct Around {
  std::string device_type;
  std::optional<int64_t> dtype;  // a c10::ScalarType; none: the default
  bool enabled;
  std::optional<bool> cache_enabled = std::nullopt;             // none: as where it is entered
  std::optional<torch::jit::SourceRange> where = std::nullopt;  // none: where the pattern is
};

// The device types of what is no scope of autocast: the function's inputs, or its results, are cast
// to float32 (passes/source/widen.h); gradients are recorded inside if it is enabled, and not if
// it is not.
inline constexpr char kWidens[] = "float32 inputs";
inline constexpr char kWidensResults[] = "float32 results";
inline constexpr char kGradients[] = "gradients";

// One scope: makes its object and enters it before a node; returns the object. `pattern` is the
// graph of the scripted function `scope` of jit_amp/_source/scope_template.py, in which there is
// one of autocast, and behind it one for gradients: their nodes are the model for ours.
torch::jit::Value* enter_scope(torch::jit::Node* before, torch::jit::Graph& pattern,
                               const Around& scope);
void exit_scope(torch::jit::Node* before, torch::jit::Graph& pattern, torch::jit::Value* object);

// `scopes` from the outermost to the innermost.
void wrap(torch::jit::Graph& graph, torch::jit::Graph& pattern, const std::vector<Around>& scopes);

// How the name begins under which methods of a module call one that has scopes for calls from
// outside.
inline constexpr char kInside[] = "_jit_amp_inside_";

// The same for methods of a module, which must belong to the caller alone, but only for who calls
// them from outside of it: a method that another one calls is there a second time, without these
// scopes, and that is the one it calls.
void wrap_from_outside(const torch::jit::Module& module, const std::vector<std::string>& methods,
                       torch::jit::Graph& pattern, const std::vector<Around>& scopes);

}  // namespace jit_amp
