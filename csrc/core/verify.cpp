#include "core/verify.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <stdexcept>

#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_of_dialect(const Node* node) {
  return node->kind().ns().toUnqualString() == std::string("jit_amp");
}

constexpr const char* kPhases[] = {"source",    "inlined", "flat",      "lowered", "runnable",
                                   "freezable", "decided", "legalized", "stock"};

// PyTorch's own checks take time with the square of the number of nodes.
constexpr size_t kFew = 200;

// The operators of the dialect that a graph of the phase may have.
std::set<c10::Symbol> allowed(Phase phase) {
  static const std::set<c10::Symbol> lowered{ops::cast,         ops::widest,        ops::opt_dtype,
                                             ops::known_device, ops::unchanged,     ops::deferred,
                                             ops::scoped,       ops::scoped_effect, ops::program,
                                             ops::fail,         ops::detached};
  std::set<c10::Symbol> found;
  switch (phase) {
    case Phase::source:
    case Phase::inlined:
    case Phase::flat:
      found = {ops::unchanged, ops::program, ops::completed, ops::explain_begin, ops::explain_end};
      break;
    case Phase::lowered:
    case Phase::runnable:
      found = lowered;
      found.insert({ops::ambient_dtype, ops::block_done, ops::completed, ops::enter_scope,
                    ops::exit_scope, ops::explain_begin, ops::explain_end});
      break;
    case Phase::freezable:
    case Phase::decided:
      found = lowered;
      break;
    case Phase::legalized:
    case Phase::stock:
      break;
  }
  if (has_marked_loops(phase)) {
    found.insert(ops::carried);
  }
  return found;
}

[[noreturn]] void fail(const Node* node, Phase phase, const std::string& pass,
                       const std::string& what) {
  std::ostringstream text;
  text << "jit_amp: after `" << pass << "` a graph that should be " << name_of(phase) << " has "
       << what;
  if (node) {
    text << ":\n" << *node;
  }
  throw std::logic_error(text.str());
}

// Whether AliasDb sees what the loop carries in `value`.
bool is_marked(const Value* value) {
  return is_plain(value->type()) || is_autocast_class(value->type()) || value->uses().empty() ||
         std::all_of(value->uses().begin(), value->uses().end(),
                     [](const Use& use) { return use.user->kind() == ops::carried; });
}

void verify_loop(const Node* loop, Phase phase, const std::string& pass) {
  for (const auto values : {loop->blocks()[0]->inputs(), loop->outputs()}) {
    for (const Value* value : values) {
      if (!is_marked(value)) {
        fail(loop, phase, pass, "a loop that is not marked: %" + value->debugName());
      }
    }
  }
}

}  // namespace

const char* name_of(Phase phase) { return kPhases[static_cast<size_t>(phase)]; }

Phase phase_named(const std::string& name) {
  const auto* found = std::find(std::begin(kPhases), std::end(kPhases), name);
  if (found == std::end(kPhases)) {
    throw std::invalid_argument("jit_amp: no phase is called '" + name + "'");
  }
  return static_cast<Phase>(found - std::begin(kPhases));
}

bool has_marked_loops(Phase phase) {
  return phase == Phase::flat || phase == Phase::lowered || phase == Phase::decided ||
         phase == Phase::legalized;
}

void verify(Graph& graph, Phase phase, const std::string& pass, bool changed) {
  const auto nodes = all_nodes(graph);
  if (changed && nodes.size() <= kFew) {
    graph.lint();
  }
  const auto operators = allowed(phase);
  for (Node* node : nodes) {
    if (is_of_dialect(node) && !operators.count(node->kind())) {
      fail(node, phase, pass, "an operator of another phase");
    }
    if (phase >= Phase::freezable && ops::is_query_of_ours(node)) {
      fail(node, phase, pass, "an operator that only jit_amp registers");
    }
    if (phase > Phase::flat) {
      for (const Value* value : node->outputs()) {
        if (is_autocast_class(value->type())) {
          fail(node, phase, pass, "an autocast object");
        }
      }
    }
    if (node->kind() == prim::Loop && has_marked_loops(phase)) {
      verify_loop(node, phase, pass);
    }
  }
}

bool is_verifying() {
  static const bool asked = [] {
    const char* value = std::getenv("JIT_AMP_VERIFY");
    return value && std::string(value) == "1";
  }();
  return asked;
}

}  // namespace jit_amp
