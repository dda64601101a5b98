// tables: what stands in the pipelines, and what is said of passes, to be read: by tests, by
// scripts/internals, and by whoever runs one pass alone.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "pipelines/pipeline.h"

namespace jit_amp {

// The tables for one graph, by name.
const std::vector<std::pair<const char*, const std::vector<Pass>*>>& graph_tables();

// A row of a pipeline, in words.
struct PassText {
  std::string name, needs, gives, kind, targets;
  bool reads_facts;
};

struct PipelineText {
  std::string name;
  bool is_for_modules;
  std::vector<PassText> passes;
};

// All pipelines.
std::vector<PipelineText> pipelines();

// passes/passes.inc.
struct PassSummary {
  std::string folder, name, what;
};
std::vector<PassSummary> pass_summaries();

// passes/quirks/quirks.inc.
struct QuirkText {
  std::string name, file, fault, instead, first_release, last_release;
};
std::vector<QuirkText> quirks();

// analysis/thresholds.inc.
struct ThresholdText {
  std::string name;
  int64_t value;
  std::string of, why;
};
std::vector<ThresholdText> thresholds();

}  // namespace jit_amp
