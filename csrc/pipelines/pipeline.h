// pipeline: passes in their order, as data.
//
// A pipeline is a table. Each row has the name of a pass, the function that runs it, the phases
// (core/verify.h) in which it takes a graph and leaves it, what goes wrong without it, which
// targets it is for, and whether it reads facts. passes/passes.inc says of each name what it is.
// Most tables are for one graph, with a `Context`; those of pipelines/modules.h are for a whole
// module, and the graphs of all its methods are in the phase. `run_pipeline` goes through a table
// and, around each pass,
//
//   - leaves out what is for other targets than this one;
//   - finds the facts that the pass reads, where an earlier pass has changed the graph since;
//   - checks that the graphs are in the phase that the pass needs, and, under JIT_AMP_VERIFY=1,
//   that
//     they are what their phase promises, and that the pass told the truth of whether it changed
//     them;
//   - prints the graphs before and after for PyTorch's own log: PYTORCH_JIT_LOG_LEVEL=share_casts;
//   - leaves out passes for speed beyond the first n that JIT_AMP_STOP_AFTER=n allows, in the whole
//     process: to find the one that makes a difference;
//   - adds up the time that the pass takes.
#pragma once

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/api/object.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "analysis/facts.h"
#include "analysis/scopes.h"
#include "core/verify.h"
#include "passes/lowering/lower.h"
#include "passes/source/cast_io.h"
#include "passes/source/fix_attributes.h"

namespace jit_amp {

// How a program may round, and where it may run. What is not frozen is `exact`.
enum class Target : uint8_t {
  exact,     // as eager, everywhere: freeze(optimize_numerics=False)
  portable,  // otherwise than eager, everywhere
  server,    // the same, with operators that only builds for x86 have
};

// Throws std::invalid_argument for another name.
Target target_named(const std::string& name);

// All that the passes of a pipeline for one graph read and write.
struct Context {
  // What is compiled, and for what. `self` is null for a function.
  torch::jit::GraphFunction* function = nullptr;
  torch::jit::ObjectPtr self = nullptr;
  Destination destination = Destination::in_process;
  AutocastState entry = {};  // the autocast state around a call
  Target target = Target::exact;
  std::vector<torch::jit::Stack> examples = {};    // of a frozen module's arguments, without self
  std::optional<IoDtype> io_dtype = std::nullopt;  // what a frozen module takes and gives
  bool check_inputs =
      true;  // whether the frozen module checks them, so that facts may rest on them
  AbstractValue known_self = {};  // what holds of `self` at each call
  bool has_casts = false;         // of a frozen module: autocast concerned it

  std::shared_ptr<torch::jit::Graph> graph = nullptr;
  Phase phase = Phase::source;
  std::vector<Read> reads = {};  // attributes that scopes rest on
  Scopes scopes = {};
  std::vector<AbstractValue> inputs = {};  // what the frozen module's check lets in
  Facts facts = {};
  bool facts_hold = false;  // of the graph as it is
};

// What goes wrong without a pass.
enum class Kind : uint8_t {
  meaning,  // the program is another, or is refused
  quirk,    // what PyTorch does later breaks it (csrc/passes/quirks, for_interpreter)
  speed,    // it takes longer, and is no less right
};

// Which targets it is for.
enum class For : uint8_t {
  all,
  exact,
  numerics,  // those that may round otherwise than eager: portable and server
  servers,   // server; but not graphs that start tasks
};

enum class Reads : uint8_t { graph, facts };

template <class C>
struct PassOf {
  const char* name;
  bool (*run)(C& context);  // whether it changed the graphs
  Phase needs;
  Phase gives;
  Kind kind;
  For targets = For::all;
  Reads reads = Reads::graph;
};

using Pass = PassOf<Context>;

// A pass as a row has it, of a graph alone or with what is known of it. One that returns nothing
// changes nothing.
template <auto pass>
bool run(Context& context) {
  using torch::jit::Graph;
  const auto told = [](auto&... arguments) {
    if constexpr (std::is_void_v<std::invoke_result_t<decltype(pass), decltype(arguments)...>>) {
      pass(arguments...);
      return false;
    } else {
      return pass(arguments...);
    }
  };
  if constexpr (std::is_invocable_v<decltype(pass), Graph&>) {
    return told(*context.graph);
  } else if constexpr (std::is_invocable_v<decltype(pass), std::shared_ptr<Graph>&>) {
    return told(context.graph);
  } else if constexpr (std::is_invocable_v<decltype(pass), Graph&, Facts&>) {
    return told(*context.graph, context.facts);
  } else {
    return told(context.graph, context.facts);
  }
}

// Whether the pass is for this target and this graph.
bool is_for(const Pass& pass, const Context& context);

void run_pipeline(const std::vector<Pass>& pipeline, Context& context);

// Per pass, how often it ran in this process and the seconds it took.
std::map<std::string, std::pair<int64_t, double>> pass_times();

}  // namespace jit_amp
