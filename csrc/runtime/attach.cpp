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

#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "runtime/program.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// PyTorch keeps a graph and an executor of a function for each ambient state, by its
// SpecializationKey: off, CPU, CUDA, both. They are private, and there is no other way to say what
// runs under one of these states alone, or to ask whether it is too late to say it. An explicit
// instantiation may name private members.
template <typename Tag, typename Tag::Member member>
struct Opened {
  friend typename Tag::Member open(Tag) { return member; }
};
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

bool serve_ambient(GraphFunction& function) {
  function.ensure_defined();
  if (Program::is_behind(function)) {
    return true;
  }
  const std::lock_guard<std::recursive_mutex> lock(function.*open(CompileMutex()));
  const auto& executors = function.*open(Executors());
  if (std::any_of(executors.begin() + 1, executors.end(),
                  [](const auto& executor) { return executor.has_value(); })) {
    return false;
  }
  const auto program = c10::make_intrusive<Program>(function)->graph();
  auto& graphs = function.*open(OptimizedGraphs());
  std::fill(graphs.begin() + 1, graphs.end(), program);
  return true;
}

// Each method and hook of the module and of those below it, once.
std::vector<GraphFunction*> all_methods(const Module& module) {
  std::vector<GraphFunction*> functions;
  std::unordered_set<const c10::ClassType*> seen;
  for (const Module& each : module.modules()) {
    if (!seen.insert(each.type().get()).second) {
      continue;
    }
    for (const auto& some : {each.type()->methods(), each.type()->getForwardPreHooks(),
                             each.type()->getForwardHooks()}) {
      for (Function* method : some) {
        if (auto* function = tryToGraphFunction(*method)) {
          functions.push_back(function);
        }
      }
    }
  }
  return functions;
}

bool has_scopes(GraphFunction& function, std::unordered_set<const Function*>& seen) {
  if (!seen.insert(&function).second) {
    return false;
  }
  function.ensure_defined();
  const auto nodes = all_nodes(*function.graph());
  return std::any_of(nodes.begin(), nodes.end(), [&](Node* node) {
    if (node->kind() == prim::CallMethod) {  // of an object of a class as well
      auto* method = tryToGraphFunction(node);
      return method && has_scopes(*method, seen);
    }
    if (node->kind() == prim::CreateObject) {
      return is_autocast_class(node->output()->type());
    }
    if (node->kind() == prim::Enter) {
      return is_autocast_class(node->input()->type());
    }
    const auto type = node->kind() == prim::Constant
                          ? node->output()->type()->cast<c10::FunctionType>()
                          : nullptr;
    auto* callee = type ? tryToGraphFunction(*type->function()) : nullptr;
    return callee && has_scopes(*callee, seen);
  });
}

// Turns a function that has not run yet and whose graph is its own into a lowered one.
c10::intrusive_ptr<Program> attach(GraphFunction& function) {
  function.ensure_defined();
  (void)function.getSchema();  // made from the graph if there is none: before it becomes a stub
  auto program = c10::make_intrusive<Program>(function);
  function._set_ignore_amp(true);  // one optimized graph, whatever the ambient autocast is
  const GraphOptimizerEnabledGuard unoptimized(false);  // it is replaced: a plain copy will do
  replace_contents(*function.optimized_graph(), *program->graph());
  // PyTorch's other executor differentiates parts of a graph itself, and where an operator promotes
  // its operands it forgets to bring the gradient back to theirs. This one runs the graph as it is,
  // with eager's own autograd.
  function._set_initial_executor_execution_mode(ExecutorExecutionMode::SIMPLE);
  return program;
}

// The methods that methods of the module and of those below it call.
std::unordered_set<const Function*> called_methods(const Module& module) {
  std::unordered_set<const Function*> called;
  for (const Module& each : module.modules()) {
    for (Function* method : each.type()->methods()) {
      auto* function = tryToGraphFunction(*method);
      for (Node* node : function ? all_nodes(*function->graph()) : std::vector<Node*>()) {
        const auto type = node->kind() == prim::CallMethod
                              ? node->input(0)->type()->cast<c10::ClassType>()
                              : nullptr;
        if (type) {
          called.insert(type->findMethod(node->s(attr::name)));
        }
      }
    }
  }
  return called;
}

}  // namespace

bool has_scopes(const StrongFunctionPtr& function) {
  std::unordered_set<const Function*> seen;
  auto* source = tryToGraphFunction(*function.function_);
  return source && has_scopes(*source, seen);
}

bool has_scopes(const Object& object) {
  std::unordered_set<const Function*> seen;
  const auto methods = object.type()->methods();
  return std::any_of(methods.begin(), methods.end(), [&](Function* method) {
    auto* function = tryToGraphFunction(*method);
    return function && has_scopes(*function, seen);
  });
}

bool has_scopes(const Module& module) {
  std::unordered_set<const Function*> seen;
  const auto methods = all_methods(module);
  return std::any_of(methods.begin(), methods.end(),
                     [&](GraphFunction* method) { return has_scopes(*method, seen); });
}

bool is_lowered(const StrongFunctionPtr& function) {
  return Program::is_behind(toGraphFunction(*function.function_));
}

bool is_lowered(const Module& module) {
  const auto methods = all_methods(module);
  return std::all_of(methods.begin(), methods.end(),
                     [](GraphFunction* method) { return Program::is_behind(*method); });
}

bool serve_ambient(const StrongFunctionPtr& function) {
  return serve_ambient(toGraphFunction(*function.function_));
}

bool serve_ambient(const Module& module) {
  const auto methods = all_methods(module);
  return std::all_of(methods.begin(), methods.end(),
                     [](GraphFunction* method) { return serve_ambient(*method); });
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

Module submodule(const Module& module, const std::string& path) {
  Module at = module;
  std::istringstream names(path);
  for (std::string name; std::getline(names, name, '.');) {
    at = at.attr(name).toModule();
  }
  return at;
}

StrongFunctionPtr lowered_copy(const StrongFunctionPtr& function) {
  return refusing_unfit_graphs([&] {
    auto copy = copied(function);
    attach(toGraphFunction(*copy.function_))->prepare(nullptr);
    return copy;
  });
}

Module own_copy(const Module& module) {
  for (const Module& each : module.modules()) {
    if (!each.type()->getForwardHooks().empty() || !each.type()->getForwardPreHooks().empty()) {
      throw refusal(Refusal::hooks, nullptr, {each.type()->name()->name()});
    }
  }
  Module copy = module.clone(/*inplace=*/true);
  copy_ignored(module, copy);
  return copy;
}

Module lowered_copy(const Module& module) {
  Module copy = own_copy(module);
  std::unordered_map<const Function*, c10::intrusive_ptr<Program>> programs;
  for (GraphFunction* method : all_methods(copy)) {
    programs.emplace(method, attach(*method));
  }
  const auto called = called_methods(copy);
  std::unordered_set<const Function*> prepared;
  for (const Module& each : copy.modules()) {
    for (Function* method : each.type()->methods()) {
      if (programs.count(method) && !called.count(method) && prepared.insert(method).second) {
        programs.at(method)->prepare(each._ivalue());
      }
    }
  }
  return copy;
}

}  // namespace jit_amp
