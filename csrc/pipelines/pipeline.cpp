#include "pipelines/pipeline.h"

#include <torch/csrc/jit/jit_log.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <stdexcept>

#include "core/forks.h"
#include "core/graphs.h"
#include "pipelines/modules.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_for_target(For targets, Target target) {
  switch (targets) {
    case For::exact:
      return target == Target::exact;
    case For::numerics:
      return target != Target::exact;
    case For::servers:
      return target == Target::server;
    default:
      return true;
  }
}

struct Spent {
  Lock lock;
  std::map<std::string, std::pair<int64_t, double>> of;
};

Spent& spent() {
  static auto& all = *new Spent;  // outlives TorchScript's own statics
  return all;
}

using Graphs = std::vector<std::shared_ptr<Graph>>;

Graphs graphs_in(const Context& context) {
  return context.graph ? Graphs{context.graph} : Graphs();
}
Graphs graphs_in(const ModuleContext& context) { return graphs_of(context); }

void dump(const char* pass, const char* when, const Graphs& graphs) {
  const std::string file = std::string(pass) + ".cpp";  // as PyTorch's log knows a pass
  if (!is_enabled(file.c_str(), JitLoggingLevels::GRAPH_DUMP)) {
    return;
  }
  for (const auto& graph : graphs) {
    get_jit_logging_output_stream()
        << jit_log_prefix(JitLoggingLevels::GRAPH_DUMP, file.c_str(), 0,
                          c10::str(when, " jit_amp's ", pass, "\n", graph->toString()));
  }
}

std::string text_of_all(const Graphs& graphs) {
  std::string text;
  for (const auto& graph : graphs) {
    text += text_of(*graph);
  }
  return text;
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

void find_what_it_reads(const Pass& pass, Context& context) {
  if (pass.reads == Reads::facts && !context.facts_hold) {
    context.facts = find_facts(context.graph, context.inputs);
    context.facts_hold = true;
  }
}
void find_what_it_reads(const ModulePass&, ModuleContext&) {}

void has_changed(Context& context) { context.facts_hold = false; }
void has_changed(ModuleContext&) {}

template <class C>
void run_pass(const PassOf<C>& pass, C& context) {
  find_what_it_reads(pass, context);
  const Graphs was = is_verifying() ? graphs_in(context) : Graphs();
  const std::string before = text_of_all(was);
  dump(pass.name, "before", graphs_in(context));
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass.run(context);
  if (changed) {
    has_changed(context);
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  {
    const std::lock_guard lock(spent().lock);
    auto& [count, total] = spent().of[pass.name];
    ++count;
    total += seconds.count();
  }
  const Graphs graphs = graphs_in(context);
  dump(pass.name, "after", graphs);
  if (!is_verifying()) {
    return;
  }
  const bool is_same = !changed && !was.empty() && graphs == was;
  if (is_same && before != text_of_all(graphs)) {
    throw std::logic_error(
        c10::str("jit_amp: `", pass.name, "` changed a graph and says that it did not"));
  }
  for (const auto& graph : graphs) {
    verify(*graph, pass.gives, pass.name, !is_same);
  }
}

bool is_for(const ModulePass& pass, const ModuleContext& context) {
  return is_for_target(pass.targets, context.target);
}

template <class C>
void run_all(const std::vector<PassOf<C>>& pipeline, C& context) {
  for (const PassOf<C>& pass : pipeline) {
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
    for (const auto& graph : graphs_in(context)) {
      graph->lint();
    }
  }
}

}  // namespace

Target target_named(const std::string& name) {
  if (name == "exact") {
    return Target::exact;
  }
  if (name == "portable") {
    return Target::portable;
  }
  if (name == "server") {
    return Target::server;
  }
  throw std::invalid_argument("jit_amp: no target is called '" + name + "'");
}

// A graph with tasks (torch.jit.fork) is not optimized for servers: what a task writes while the
// rest runs has no place in the order of nodes.
bool is_for(const Pass& pass, const Context& context) {
  return is_for_target(pass.targets, context.target) &&
         (pass.targets != For::servers || !contains(*context.graph, prim::fork));
}

void run_pipeline(const std::vector<Pass>& pipeline, Context& context) {
  run_all(pipeline, context);
}

void run_pipeline(const std::vector<ModulePass>& pipeline, ModuleContext& context) {
  run_all(pipeline, context);
}

std::map<std::string, std::pair<int64_t, double>> pass_times() {
  const std::lock_guard lock(spent().lock);
  return spent().of;
}

}  // namespace jit_amp
