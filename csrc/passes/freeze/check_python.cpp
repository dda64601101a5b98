#include "passes/freeze/check_python.h"

#include <torch/csrc/utils/object_ptr.h>

#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

void check_python(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    const Node* inner = ops::is_scoped(node) ? wrapped_node(node) : node;
    if (inner->kind() != prim::PythonOp) {
      continue;
    }
    const auto& call = static_cast<const PythonOp&>(*inner);
    const std::string name = call.name();
    const std::string instead =
        call.autogradFunction()
            ? "stock operators in the trace, `if torch.jit.is_tracing():` before what `" + name +
                  ".forward` computes, and `" + name + ".apply` after `else:`"
            : "`jit_amp.freeze(jit_amp.trace(module, example_inputs))` of the module in Python, "
              "which runs `" +
                  name + "` while it traces; or stock operators";
    throw diagnostic(Diagnostic::not_freezable, node,
                     {name, "is Python code, which",
                      instead + "; or a custom operator (`torch.library`), of which "
                                "`jit_amp.policy.register` says what is to be done with it"});
  }
}

}  // namespace jit_amp
