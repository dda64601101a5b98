#include "runtime/attach.h"

#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>

#include <array>
#include <sstream>
#include <unordered_set>

#include "error.h"
#include "passes/clean.h"
#include "passes/flatten.h"
#include "passes/lower.h"
#include "runtime/graphs.h"
#include "runtime/state.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

struct Ambient {
  bool cpu;
  bool cuda;
};
constexpr std::array<Ambient, 4> kAmbients{
    {{false, false}, {true, false}, {false, true}, {true, true}}};

// The thread's autocast state while optimized graphs are asked for.
class UnderAmbient {
 public:
  explicit UnderAmbient(Ambient ambient)
      : before_{at::autocast::is_autocast_enabled(at::kCPU),
                at::autocast::is_autocast_enabled(at::kCUDA)} {
    set(ambient);
  }
  ~UnderAmbient() { set(before_); }
  UnderAmbient(const UnderAmbient&) = delete;
  UnderAmbient& operator=(const UnderAmbient&) = delete;

 private:
  static void set(Ambient ambient) {
    at::autocast::set_autocast_enabled(at::kCPU, ambient.cpu);
    at::autocast::set_autocast_enabled(at::kCUDA, ambient.cuda);
  }
  Ambient before_;
};

State entry_state(Ambient ambient) {
  State state;
  if (ambient.cpu) {
    state.devices[at::kCPU] = {true, std::nullopt};
  }
  if (ambient.cuda) {
    state.devices[at::kCUDA] = {true, std::nullopt};
  }
  return state;
}

std::shared_ptr<Graph> lowered(const std::shared_ptr<Graph>& flat, Ambient ambient) {
  auto graph = flat->copy();
  const State entry = entry_state(ambient);
  const Scopes scopes = find_scopes(*graph, entry);
  lower(graph, scopes, entry, Product::in_process);
  if (!entry.active()) {
    for (const std::string& warning : scopes.warnings) {
      TORCH_WARN(warning);
    }
  }
  const Suspended off;  // constants fold as outside any autocast
  ConstantPropagation(graph);
  ConstantPooling(graph);
  return graph;
}

void attach(GraphFunction& fresh, GraphFunction& source) {
  // The function's own graph is a stub here. Asking for a stub's optimized graphs is cheap, where
  // those of the real graph would be inlined and folded four times over, and PyTorch's autocast
  // pass finds nothing in it to cast. (_set_ignore_amp would keep that pass away too, but a
  // function that ignores amp has one optimized graph for all ambient states.)
  auto flat = flatten(source);
  std::array<std::shared_ptr<Graph>, kAmbients.size()> graphs;
  for (size_t i = 0; i < kAmbients.size(); ++i) {
    graphs[i] = lowered(flat, kAmbients[i]);
  }
  // PyTorch's other executor differentiates parts of the graph itself, and where an operator
  // promotes its operands it forgets to bring the gradient back to theirs. This one runs the graph
  // as it is, with eager's own autograd. What it does not do is done once, in `lowered`.
  fresh._set_initial_executor_execution_mode(ExecutorExecutionMode::SIMPLE);
  for (size_t i = 0; i < kAmbients.size(); ++i) {
    const UnderAmbient ambient(kAmbients[i]);
    replace_contents(*fresh.optimized_graph(), *graphs[i]);
  }
}

std::shared_ptr<Graph> stub() {
  auto graph = std::make_shared<Graph>();
  graph->registerOutput(graph->insertConstant(c10::IValue()));
  return graph;
}

// Turns a function that has not run yet and whose graph is its own into a lowered one.
void attach_in_place(GraphFunction& function) {
  function.ensure_defined();
  (void)function.getSchema();  // made from the graph if there is none: before it becomes a stub
  auto source = function.graph()->copy();
  GraphFunction original(function.qualname(), source, nullptr);
  replace_contents(*function.graph(), *stub());
  try {
    attach(function, original);
  } catch (...) {
    replace_contents(*function.graph(), *source);
    throw;
  }
  replace_contents(*function.graph(), *source);
}

// Every call of the function raises `message`; its source graph stays.
void attach_refusal(GraphFunction& function, const std::string& message) {
  auto source = function.graph()->copy();
  replace_contents(*function.graph(), *stub());
  for (const Ambient ambient : kAmbients) {
    const UnderAmbient under(ambient);
    auto raising = std::make_shared<Graph>();
    for (const Value* input : source->inputs()) {
      raising->addInput()->setType(input->type());
    }
    raising->insert(prim::RaiseException, {message});
    Node* never = raising->insertNode(raising->create(prim::Uninitialized, 1));
    never->output()->setType(source->outputs()[0]->type());
    raising->registerOutput(never->output());
    replace_contents(*function.optimized_graph(), *raising);
  }
  replace_contents(*function.graph(), *source);
}

// A method of a submodule may be fine where its callers hand it constants, and not on its own: then
// it is refused when it is called on its own.
void attach_all(const Module& module, bool outermost, std::unordered_set<Function*>& done) {
  for (const Method& method : module.get_methods()) {
    auto* function = tryToGraphFunction(method.function());
    if (!function || !done.insert(function).second) {
      continue;
    }
    try {
      attach_in_place(*function);
    } catch (const AutocastError& refused) {
      if (outermost) {
        throw;
      }
      attach_refusal(*function, refused.what());
    }
  }
  for (const Module& child : module.children()) {
    attach_all(child, false, done);
  }
}

}  // namespace

std::shared_ptr<Graph> lowered_graph(GraphFunction& function, bool cpu, bool cuda) {
  return lowered(flatten(function), {cpu, cuda});
}

StrongFunctionPtr copied(const StrongFunctionPtr& function) {
  auto& source = toGraphFunction(*function.function_);
  source.ensure_defined();
  auto unit = std::make_shared<CompilationUnit>();
  auto* fresh = unit->create_function(source.qualname(), source.graph()->copy());
  fresh->setSchema(source.getSchema());
  return StrongFunctionPtr(std::move(unit), fresh);
}

Module submodule(const Module& module, const std::string& path) {
  Module at = module;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    at = at.attr(name).toModule();
  }
  return at;
}

StrongFunctionPtr lowered_copy(const StrongFunctionPtr& function) {
  auto copy = copied(function);
  attach_in_place(toGraphFunction(*copy.function_));
  return copy;
}

Module own_copy(const Module& module) {
  for (const Module& each : module.modules()) {
    if (!each.type()->getForwardHooks().empty() || !each.type()->getForwardPreHooks().empty()) {
      throw AutocastError(c10::str("jit_amp: forward hooks on `", each.type()->name()->name(),
                                   "`: PyTorch leaves them out when it copies a module\n\n"
                                   "Instead: the hooks' statements in `forward`"));
    }
  }
  return module.clone(/*inplace=*/true);
}

Module lowered_copy(const Module& module) {
  Module copy = own_copy(module);
  std::unordered_set<Function*> done;
  attach_all(copy, true, done);
  return copy;
}

}  // namespace jit_amp
