#include "runtime/export.h"

#include "analysis/hidden_calls.h"
#include "core/ambient.h"
#include "core/error.h"
#include "core/forks.h"
#include "pipelines/freeze.h"
#include "pipelines/script.h"

namespace jit_amp {

using namespace torch::jit;

std::shared_ptr<Graph> interpretable_graph(GraphFunction& function, const ObjectPtr& self) {
  // A call of the module runs them around the method; those of parts stand in its graph.
  if (self && function.name() == "forward" &&
      !(self->type()->getForwardHooks().empty() && self->type()->getForwardPreHooks().empty())) {
    throw diagnostic(Diagnostic::exported_hooks, nullptr, {self->type()->name()->name()});
  }
  const NoAutocastGuard ambient;
  const Turn turn;
  Context context;
  context.function = &function;
  context.self = self;
  context.destination = Destination::stock;
  refusing_unfit_graphs([&] {
    run_pipeline(flattening(), context);
    run_pipeline(lowering(), context);
    run_pipeline(exporting(), context);
  });
  return context.graph;
}

std::shared_ptr<Graph> hidden_graph(const Node* node) {
  GraphFunction* callee = hidden_callee(node);
  return callee ? interpretable_graph(*callee, nullptr) : nullptr;
}

}  // namespace jit_amp
