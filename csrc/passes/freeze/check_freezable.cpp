#include "passes/freeze/check_freezable.h"

#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

void check_freezable(Graph& graph) {
  for (const Node* node : all_nodes(graph)) {
    if (node->kind() == prim::ModuleContainerIndex) {
      throw diagnostic(Diagnostic::module_at_run_time, node);
    }
    if (node->kind() == prim::SetAttr && node->input(0)
                                                 ->type()
                                                 ->expect<c10::ClassType>()
                                                 ->getAttribute(node->s(attr::name))
                                                 ->kind() == c10::TypeKind::InterfaceType) {
      throw diagnostic(Diagnostic::assigned_module, node, {node->s(attr::name)});
    }
  }
}

}  // namespace jit_amp
