#include "runtime/attach.h"

#include <torch/csrc/jit/runtime/graph_executor.h>

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
  for (const Module& each : copy.modules()) {
    for (Function* method : each.type()->methods()) {
      if (auto* function = tryToGraphFunction(*method); function && !programs.count(method)) {
        programs.emplace(method, attach(*function));
      }
    }
  }
  const auto called = called_methods(copy);
  for (Function* method : copy.type()->methods()) {
    if (programs.count(method) && !called.count(method)) {
      programs.at(method)->prepare(copy._ivalue());
    }
  }
  return copy;
}

}  // namespace jit_amp
