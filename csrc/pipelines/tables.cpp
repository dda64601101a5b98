#include "pipelines/tables.h"

#include "pipelines/freeze.h"
#include "pipelines/modules.h"
#include "pipelines/script.h"

namespace jit_amp {
namespace {

constexpr const char* kKinds[] = {"meaning", "quirk", "speed"};
constexpr const char* kTargets[] = {"all", "exact", "numerics", "servers"};

template <class C>
PipelineText text_of_table(const char* name, bool is_for_modules,
                           const std::vector<PassOf<C>>& passes) {
  PipelineText table{name, is_for_modules, {}};
  for (const PassOf<C>& pass : passes) {
    table.passes.push_back({pass.name, name_of(pass.needs), name_of(pass.gives),
                            kKinds[static_cast<size_t>(pass.kind)],
                            kTargets[static_cast<size_t>(pass.targets)],
                            pass.reads == Reads::facts});
  }
  return table;
}

}  // namespace

const std::vector<std::pair<const char*, const std::vector<Pass>*>>& graph_tables() {
  static const auto& tables = *new std::vector<std::pair<const char*, const std::vector<Pass>*>>{
      {"flattening", &flattening()}, {"lowering", &lowering()},   {"running", &running()},
      {"entering", &entering()},     {"freezing", &freezing()},   {"deciding", &deciding()},
      {"legalizing", &legalizing()}, {"exporting", &exporting()}, {"mending", &mending()},
  };
  return tables;
}

std::vector<PipelineText> pipelines() {
  std::vector<PipelineText> tables;
  for (const auto& [name, passes] : graph_tables()) {
    tables.push_back(text_of_table(name, false, *passes));
  }
  tables.push_back(text_of_table("freezing_weights", true, freezing_weights()));
  tables.push_back(text_of_table("finishing", true, finishing()));
  tables.push_back(text_of_table("packing", true, packing()));
  tables.push_back(text_of_table("freezing_plain", true, freezing_plain()));
  return tables;
}

std::vector<PassSummary> pass_summaries() {
  return {
#define PASS(folder, name, what) {folder, #name, what},
#include "passes/passes.inc"
#undef PASS
  };
}

std::vector<QuirkText> quirks() {
  return {
#define QUIRK(name, file, fault, instead, first, last) {#name, file, fault, instead, first, last},
#include "passes/quirks/quirks.inc"
#undef QUIRK
  };
}

std::vector<ThresholdText> thresholds() {
  return {
#define THRESHOLD(name, value, of, why) {#name, value, of, why},
#include "analysis/thresholds.inc"
#undef THRESHOLD
  };
}

}  // namespace jit_amp
