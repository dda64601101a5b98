#include "passes/functionalize.h"

#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

namespace jit_amp {

using namespace torch::jit;

bool functionalize(std::shared_ptr<Graph>& graph) {
  bool changed = InplaceToFunctionalActivation(graph);
  if (RemoveListMutation(graph)) {
    changed = true;
    PeepholeOptimizeListIdioms(graph);  // lengths
    ConstantPropagationImmutableTypes(graph);
    PeepholeOptimizeListIdioms(graph);  // elements, by positions that are known now
    EliminateDeadCode(graph);
  }
  return changed;
}

}  // namespace jit_amp
