#include "runtime/freeze.h"

#include "analysis/facts.h"
#include "analysis/modules.h"
#include "core/ambient.h"
#include "core/error.h"
#include "passes/server/pack_weights.h"
#include "pipelines/freeze.h"
#include "runtime/attach.h"
#include "runtime/program.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

ModuleContext decided(const Module& module, const std::vector<std::string>& preserved_attrs,
                      const std::vector<Stack>& examples, const FreezeOptions& options) {
  const Module copy = own_copy(module);
  ModuleContext context{copy, module, preserved_attrs, kept_methods(copy, preserved_attrs)};
  context.examples = examples;
  context.target = options.target;
  context.check_inputs = options.check_inputs;
  context.io = options.io;
  run_pipeline(freezing_weights(), context);
  return context;
}

}  // namespace

Module frozen_by_pytorch(const Module& module, const std::vector<std::string>& preserved_attrs,
                         const std::optional<FreezeIo>& io) {
  const Module copy = module.clone(/*inplace=*/true);
  ModuleContext context{copy, module, preserved_attrs, kept_methods(copy, preserved_attrs)};
  context.io = io;
  run_pipeline(freezing_plain(), context);
  return context.module;
}

void mend_frozen_by_pytorch(const Module& frozen, Target target) {
  for (const GraphFunction* function : functions_of(frozen)) {
    Context context;
    context.target = target;
    context.graph = function->graph();
    context.phase = Phase::inlined;
    run_pipeline(mending(), context);
  }
}

Module freeze(const Module& module, const std::vector<std::string>& preserved_attrs,
              const std::vector<Stack>& examples, FreezeOptions options) {
  const NoAutocastGuard ambient;  // constants are folded here: as outside any autocast
  const Turn turn;
  ModuleContext context = decided(module, preserved_attrs, examples, options);
  run_pipeline(finishing(), context);
  return context.module;
}

void pack(const Module& frozen, const std::vector<Stack>& examples,
          const ScriptPacked& script_packed) {
  if (!asks_processor(frozen)) {
    return;
  }
  ModuleContext context{frozen, frozen, {}, kept_methods(frozen, {})};
  context.examples = examples;
  context.target = Target::server;
  context.script_packed = script_packed;
  context.phase = Phase::stock;
  run_pipeline(packing(), context);
}

std::shared_ptr<Graph> known_graph(const Module& module, const std::vector<Stack>& examples) {
  const NoAutocastGuard ambient;
  const Turn turn;
  const ModuleContext context = decided(module, {}, examples, FreezeOptions());
  const Context& forward = context.methods.at(0);
  return annotated(forward.graph, forward.facts);
}

}  // namespace jit_amp
