#include "passes/check_freezable.h"

#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

void check_freezable(Graph& graph) {
  for (const Node* node : all_nodes(graph)) {
    if (node->kind() == prim::ModuleContainerIndex) {
      throw refusal(node, "a module that is chosen at run time, in a module that is to be frozen",
                    "`if` with a call of each module in a branch of its own");
    }
    if (node->kind() == prim::SetAttr && node->input(0)
                                                 ->type()
                                                 ->expect<c10::ClassType>()
                                                 ->getAttribute(node->s(attr::name))
                                                 ->kind() == c10::TypeKind::InterfaceType) {
      throw refusal(node,
                    c10::str("`", node->s(attr::name),
                             "`, a module behind an interface, is assigned in code that is to be "
                             "frozen"),
                    "`if` with a call of each module in a branch of its own");
    }
  }
}

}  // namespace jit_amp
