#include "passes/quirks/freezing/own_callstacks.h"

#include <torch/csrc/jit/api/compilation_unit.h>

#include <string>
#include <unordered_map>

#include "core/forks.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

using Stacks = std::unordered_map<const InlinedCallStack*, InlinedCallStackPtr>;

// A function of that name. It stays.
Function* function_named(const std::string& name) {
  static auto& unit = *new CompilationUnit();
  static auto& lock = *new Lock;
  const std::lock_guard held(lock);
  const c10::QualifiedName qualified(c10::QualifiedName("__jit_amp__"),
                                     name.empty() ? "function" : name);
  Function* known = unit.find_function(qualified);
  return known ? known : unit.create_function(qualified, std::make_shared<Graph>());
}

InlinedCallStackPtr own(const InlinedCallStackPtr& stack, Stacks& known) {
  InlinedCallStackPtr& made = known[stack.get()];
  if (!made) {
    std::string name = stack->function_name();
    Function* function = function_named(name);
    const auto callee = stack->callee();
    made = callee ? c10::make_intrusive<InlinedCallStack>(own(*callee, known), function,
                                                          stack->source_range(),
                                                          stack->module_instance(), name)
                  : c10::make_intrusive<InlinedCallStack>(function, stack->source_range(),
                                                          stack->module_instance(), name);
  }
  return made;
}

}  // namespace

void own_callstacks(const std::vector<std::shared_ptr<Graph>>& methods) {
  Stacks known;
  for (const auto& graph : methods) {
    for (Node* node : all_nodes(*graph)) {
      if (const auto stack = node->callstack()) {
        node->setCallStack(own(*stack, known));
      }
    }
  }
}

}  // namespace jit_amp
