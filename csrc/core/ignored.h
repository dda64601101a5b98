// ignored: functions and methods that ignore autocast.
//
// A process-wide set of scripted functions and of methods of single modules, kept by what
// jit_amp.ignore_amp asks for. flatten puts disabled scopes around each of them, wherever it is
// called from, and switches off those inside where these are to be ignored too; a lowered function
// looks at the version at every call and is lowered anew when what it rests on has changed. Safe to
// use from several threads.
#pragma once

#include <torch/csrc/jit/api/module.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace jit_amp {

// Lines of a source file, from the first to the last. The file is a path, or the end of one.
struct Lines {
  std::string file;
  size_t first;
  size_t last;
};

// What of a method stays in float32, also in what it calls.
struct KeptParts {
  std::vector<Lines> lines = {};
  std::vector<std::string> operators = {};  // of all overloads: "aten::softmax"

  bool empty() const { return lines.empty() && operators.empty(); }
};

// How something ignores autocast.
struct Ignoring {
  std::shared_ptr<torch::jit::Graph> pattern;  // wrap's
  bool scopes;                                 // its own as well
  bool widens = false;                         // and is given float32
  KeptParts kept = {};                         // not all of it: these parts
};

// None makes it heed autocast again. The function is known by its source graph, the method by its
// module.
void ignore(const std::shared_ptr<torch::jit::Graph>& function, const std::optional<Ignoring>& how);
void ignore(const torch::jit::ObjectPtr& module, const std::string& method,
            const std::optional<Ignoring>& how);

// How the function, or the module's method, ignores autocast, if it does.
std::optional<Ignoring> ignored(const torch::jit::GraphFunction& function,
                                const torch::jit::ObjectPtr& module);

// Whether that method of any module of the class is ignored.
bool any_ignored(const c10::ClassType& cls, const std::string& method);

// What is ignored of `from` is ignored of `to`, a copy of it that nothing was lowered for yet.
void copy_ignored(const torch::jit::GraphFunction& from, const torch::jit::GraphFunction& to);
void copy_ignored(const torch::jit::Module& from, const torch::jit::Module& to);

// What is ignored in the module and in those below it, and where: two modules of a class between
// which it does not differ are lowered alike.
using IgnoredIn = std::vector<std::pair<size_t, uint64_t>>;
IgnoredIn ignored_in(const torch::jit::ObjectPtr& module);

// Changes whenever the set does, but for what is forgotten.
uint64_t ignored_version();

// Forgets what was said of modules that are gone.
void forget_ignored();

}  // namespace jit_amp
