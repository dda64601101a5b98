#include "pipelines/pipeline.h"

#include <torch/csrc/jit/jit_log.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "core/forks.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

struct Spent {
  Lock lock;
  std::map<std::string, std::pair<int64_t, double>> of;
};

Spent& spent() {
  static auto& all = *new Spent;  // outlives TorchScript's own statics
  return all;
}

void dump(const char* pass, const char* when, const std::shared_ptr<Graph>& graph) {
  const std::string file = std::string(pass) + ".cpp";  // as PyTorch's log knows a pass
  if (graph && is_enabled(file.c_str(), JitLoggingLevels::GRAPH_DUMP)) {
    get_jit_logging_output_stream()
        << jit_log_prefix(JitLoggingLevels::GRAPH_DUMP, file.c_str(), 0,
                          c10::str(when, " jit_amp's ", pass, "\n", graph->toString()));
  }
}

// Whether JIT_AMP_STOP_AFTER allows one more pass for speed.
bool is_allowed() {
  static const int64_t limit = [] {
    const char* value = std::getenv("JIT_AMP_STOP_AFTER");
    return value ? std::atoll(value) : std::numeric_limits<int64_t>::max();
  }();
  static std::atomic<int64_t> done{0};
  return done++ < limit;
}

void run_pass(const Pass& pass, Context& context) {
  if (pass.reads == Reads::facts && !context.facts_hold) {
    context.facts = find_facts(context.graph, context.inputs);
    context.facts_hold = true;
  }
  const bool is_checked = is_verifying() && context.graph;
  const std::string before = is_checked ? text_of(*context.graph) : "";
  const Graph* const was = context.graph.get();
  dump(pass.name, "before", context.graph);
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass.run(context);
  context.facts_hold &= !changed;
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  {
    const std::lock_guard lock(spent().lock);
    auto& [count, total] = spent().of[pass.name];
    ++count;
    total += seconds.count();
  }
  dump(pass.name, "after", context.graph);
  if (!is_verifying()) {
    return;
  }
  const bool is_same = is_checked && context.graph.get() == was && !changed;
  if (is_same && before != text_of(*context.graph)) {
    throw std::logic_error(
        c10::str("jit_amp: `", pass.name, "` changed a graph and says that it did not"));
  }
  verify(*context.graph, pass.gives, pass.name, !is_same);
}

}  // namespace

bool is_for_server(const Context& context) {
  return context.for_server && !contains(*context.graph, prim::fork);
}

bool is_for(const Pass& pass, const Context& context) {
  switch (pass.target) {
    case For::exact:
      return !context.optimize_numerics;
    case For::numerics:
      return context.optimize_numerics;
    case For::servers:
      return is_for_server(context);
    default:
      return true;
  }
}

void run_pipeline(const std::vector<Pass>& pipeline, Context& context) {
  for (const Pass& pass : pipeline) {
    if (context.phase != pass.needs) {
      throw std::logic_error(c10::str("jit_amp: `", pass.name, "` takes a graph that is ",
                                      name_of(pass.needs), ", and this one is ",
                                      name_of(context.phase)));
    }
    if (is_for(pass, context) && (pass.kind != Kind::speed || is_allowed())) {
      run_pass(pass, context);
    }
    context.phase = pass.gives;
  }
  if (is_verifying()) {
    context.graph->lint();
  }
}

std::map<std::string, std::pair<int64_t, double>> pass_times() {
  const std::lock_guard lock(spent().lock);
  return spent().of;
}

}  // namespace jit_amp
