#include "runtime/attach.h"

#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/runtime/graph_executor.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>
#include <sstream>
#include <unordered_map>
#include <unordered_set>

#include "analysis/has_scopes.h"
#include "analysis/modules.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "core/private_members.h"
#include "passes/source/wrap.h"
#include "runtime/program.h"

namespace jit_amp {

using namespace torch::jit;

// PyTorch keeps a graph and an executor of a function for each ambient state, by its
// SpecializationKey: off, CPU, CUDA, both. They are private, and there is no other way to say what
// runs under one of these states alone.
struct Executors {
  using Member = std::array<std::optional<GraphExecutor>, 4> GraphFunction::*;
  friend Member open(Executors);
};
struct OptimizedGraphs {
  using Member = std::array<std::shared_ptr<Graph>, 4> GraphFunction::*;
  friend Member open(OptimizedGraphs);
};
struct CompileMutex {
  using Member = std::recursive_mutex GraphFunction::*;
  friend Member open(CompileMutex);
};
template struct Opened<Executors, &GraphFunction::executors_>;
template struct Opened<OptimizedGraphs, &GraphFunction::optimized_graphs_>;
template struct Opened<CompileMutex, &GraphFunction::compile_mutex>;

// An executor that is there is never replaced, and no reference to one is kept: GraphFunction hands
// out references to them, so a thread may be in one at any time, with no lock held. What is not
// made yet is made by the first call that needs it, under the compile mutex, of the graphs here.
bool serve_ambient(GraphFunction& function, bool only_asks) {
  function.ensure_defined();
  const std::lock_guard<std::recursive_mutex> lock(function.*open(CompileMutex()));
  if (Program::behind(function)) {
    return true;  // lowered, or served before
  }
  const auto& executors = function.*open(Executors());
  if (std::any_of(executors.begin() + 1, executors.end(),
                  [](const auto& executor) { return executor.has_value(); })) {
    return false;
  }
  if (!only_asks) {
    auto& graphs = function.*open(OptimizedGraphs());
    std::fill(graphs.begin() + 1, graphs.end(), c10::make_intrusive<Program>(function)->graph());
  }
  return true;
}

namespace {

// Turns a function whose graph is its own into a lowered one. Nothing else runs it just now.
void attach(GraphFunction& function) {
  function.ensure_defined();
  if (Program::behind(function)) {
    return;
  }
  (void)function.getSchema();  // made from the graph if there is none: before it becomes a stub
  const auto program = c10::make_intrusive<Program>(function);
  function._set_ignore_amp(true);  // one optimized graph, whatever the ambient autocast is
  const std::lock_guard<std::recursive_mutex> lock(function.*open(CompileMutex()));
  (function.*open(Executors())).fill(std::nullopt);  // a trace has run when PyTorch checked it
  function.clear_optimized_graphs();
  const GraphOptimizerEnabledGuard unoptimized(false);  // it is replaced: a plain copy will do
  replace_contents(*function.optimized_graph(), *program->graph());
  // PyTorch's other executor differentiates parts of a graph itself, and where an operator promotes
  // its operands it forgets to bring the gradient back to theirs. This one runs the graph as it is,
  // with eager's own autograd.
  function._set_initial_executor_execution_mode(ExecutorExecutionMode::SIMPLE);
}

bool runs_program(GraphFunction* function) { return Program::behind(*function) != nullptr; }

// The methods that methods of the module and of those below it call, and those that stand for these
// in calls from outside. But `forward` is for such calls in the first place.
std::unordered_set<const Function*> called_methods(const Module& module) {
  std::unordered_set<const Function*> called;
  for (GraphFunction* function : functions_of(module)) {
    for (Node* node : all_nodes(*function->graph(), prim::CallMethod)) {
      if (const auto type = node->input(0)->type()->cast<c10::ClassType>()) {
        const std::string& name = node->s(attr::name);
        called.insert(type->findMethod(name));
        if (name.starts_with(kInside) && name.substr(sizeof(kInside) - 1) != "forward") {
          called.insert(type->findMethod(name.substr(sizeof(kInside) - 1)));
        }
      }
    }
  }
  return called;
}

// Lowers every method with scopes that no other method calls, for the first module that has it.
void prepare(const Module& module, HasScopes& has_scopes) {
  if (!has_scopes(module)) {
    return;
  }
  auto done = called_methods(module);
  for (const Module& each : module.modules()) {
    for (Function* method : each.type()->methods()) {
      auto* function = tryToGraphFunction(*method);
      if (function && has_scopes(*function) && done.insert(method).second) {
        Program::behind(*function)->prepare(each._ivalue());
      }
    }
  }
}

}  // namespace

bool can_serve(const c10::ClassTypePtr& type) {
  const auto functions = functions_of(*type);
  return std::all_of(functions.begin(), functions.end(), [](GraphFunction* function) {
    return serve_ambient(*function, /*only_asks=*/true);
  });
}

StrongFunctionPtr copied(const StrongFunctionPtr& function) {
  auto& source = toGraphFunction(*function.function_);
  source.ensure_defined();
  auto unit = std::make_shared<CompilationUnit>();
  StrongFunctionPtr copy(unit, unit->create_function(source.qualname(), source.graph()->copy()));
  copy.function_->setSchema(source.getSchema());
  copy_ignored(source, toGraphFunction(*copy.function_));
  own(copy);
  return copy;
}

namespace {

using Types = std::unordered_map<c10::TypePtr, c10::TypePtr>;

// The type of each module, and that of its clone.
void add_types(const Module& module, const Module& copy, Types& types) {
  if (types.emplace(module.type(), copy.type()).second) {
    for (const auto& child : module.named_children()) {
      add_types(child.value, copy.attr(child.name).toModule(), types);
    }
  }
}

// PyTorch clones one module after the other, and its methods with it. A method that takes another
// module, as those of a trace do that share one, still takes the original's type if that module's
// turn comes later.
void take_clones(const Module& module, const Module& copy) {
  Types types;
  add_types(module, copy, types);
  const auto cloned = [&](const c10::TypePtr& type) {
    const auto found = types.find(type);
    return found == types.end() ? type : found->second;
  };
  for (GraphFunction* function : functions_of(copy)) {
    const auto formals = function->graph()->inputs();
    if (std::any_of(formals.begin(), formals.end(),
                    [&](const Value* formal) { return types.count(formal->type()) != 0; })) {
      function->graph()->remapTypes(cloned);
      function->setSchema(function->getSchema().cloneWithRemappedTypes(cloned));
    }
  }
}

}  // namespace

StrongFunctionPtr lowered_copy(const StrongFunctionPtr& function) {
  return refusing_unfit_graphs([&] {
    auto copy = copied(function);
    auto& own = toGraphFunction(*copy.function_);
    if (!HasScopes()(own)) {
      serve_ambient(own);
      return copy;
    }
    attach(own);
    Program::behind(own)->prepare(nullptr);
    return copy;
  });
}

Module own_copy(const Module& module) {
  for (const Module& each : module.modules()) {
    if (!each.type()->getForwardHooks().empty() || !each.type()->getForwardPreHooks().empty()) {
      throw diagnostic(Diagnostic::hooks, nullptr, {each.type()->name()->name()});
    }
  }
  Module copy = module.clone(/*inplace=*/true);
  take_clones(module, copy);
  copy_ignored(module, copy);
  return copy;
}

void lower_type(const c10::ClassType& type) {
  for (GraphFunction* function : functions_of(type)) {
    attach(*function);
  }
}

bool lower_where_it_is(const Module& module) {
  HasScopes has_scopes;
  for (const auto& type : types_of(module)) {
    const auto functions = functions_of(*type);
    if (!has_scopes.methods(*type)) {
      for (GraphFunction* function : functions) {
        if (!serve_ambient(*function)) {
          return false;
        }
      }
    } else if (std::any_of(functions.begin(), functions.end(), runs_program)) {
      lower_type(*type);  // what was added to it since
    } else {
      return false;
    }
  }
  prepare(module, has_scopes);
  return true;
}

Module lowered_copy(const Module& module) {
  Module copy = own_copy(module);
  HasScopes has_scopes;
  const bool is_lowered = has_scopes(copy);
  for (GraphFunction* method : functions_of(copy)) {
    if (is_lowered) {
      attach(*method);
    } else {
      serve_ambient(*method);
    }
  }
  prepare(copy, has_scopes);
  return copy;
}

void inline_sources(Graph& graph) {
  bool is_changed = true;
  while (is_changed) {  // what is inlined has calls of its own
    is_changed = false;
    for (Node* node : all_nodes(graph)) {
      const Function* callee = nullptr;
      if (node->kind() == prim::CallFunction) {
        const auto type = node->input(0)->type()->cast<c10::FunctionType>();
        callee = type ? type->function() : nullptr;
      } else if (node->kind() == prim::CallMethod) {
        const auto type = node->input(0)->type()->cast<c10::ClassType>();
        callee = type ? type->findMethod(node->s(attr::name)) : nullptr;
      }
      auto* function = callee ? tryToGraphFunction(const_cast<Function&>(*callee)) : nullptr;
      if (!function) {
        continue;
      }
      function->ensure_defined();
      if (node->kind() == prim::CallFunction) {
        Node* constant = node->input(0)->node();
        node->removeInput(0);
        if (!constant->hasUses()) {
          constant->destroy();
        }
      }
      inlineCallTo(node, function, function->graph().get());
      is_changed = true;
    }
  }
}

}  // namespace jit_amp
