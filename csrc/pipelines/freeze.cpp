#include "pipelines/freeze.h"

#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>

#include "analysis/guards.h"
#include "analysis/preconditions.h"
#include "core/graphs.h"
#include "core/loops.h"
#include "passes/freeze/answer_questions.h"
#include "passes/freeze/check_freezable.h"
#include "passes/freeze/check_python.h"
#include "passes/freeze/check_writes.h"
#include "passes/freeze/decompose.h"
#include "passes/freeze/fold_legalized.h"
#include "passes/freeze/fold_weights.h"
#include "passes/freeze/guard_autocast.h"
#include "passes/freeze/guard_devices.h"
#include "passes/freeze/legalize.h"
#include "passes/freeze/mark_modes.h"
#include "passes/freeze/merge_branches.h"
#include "passes/freeze/share_parts.h"
#include "passes/freeze/write_queries.h"
#include "passes/quirks/autodiff/keep_gradients.h"
#include "passes/quirks/autodiff/promote_operands.h"
#include "passes/quirks/files/annotate_elements.h"
#include "passes/quirks/freezing/keep_detach.h"
#include "passes/quirks/onednn/detach_sizes.h"
#include "passes/quirks/onednn/keep_in_place.h"
#include "passes/quirks/onednn/write_activations.h"
#include "passes/quirks/onednn/write_strides.h"
#include "passes/quirks/operators/round_products.h"
#include "passes/quirks/optimizer/keep_addmm.h"
#include "passes/quirks/optimizer/keep_dim.h"
#include "passes/quirks/optimizer/keep_results.h"
#include "passes/quirks/optimizer/keep_zero_dim.h"
#include "passes/server/channels_last.h"
#include "passes/server/functionalize.h"
#include "passes/server/fuse_attention.h"
#include "passes/server/fuse_pointwise.h"
#include "passes/server/widen_products.h"

namespace jit_amp {
namespace {

// What is known of a call's arguments: from examples, or from what would fail without it. Nothing
// where the frozen module has no check of it.
bool run_inputs(Context& c) {
  if (c.check_inputs) {
    c.inputs =
        c.examples.empty() ? inferred_preconditions(c.graph) : inputs_of(*c.graph, c.examples);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.graph->inputs()[i]->hasUses()) {  // nothing is taken for granted of it, or checked
      c.inputs[i] = {};
    }
  }
  if (c.known_self.kind != AbstractValue::unknown) {
    c.inputs.resize(std::max<size_t>(c.inputs.size(), 1));
    c.inputs[0] = c.known_self;
  }
  return false;
}

// Answers until nothing more follows. PyTorch's constant propagation makes parts of a weight
// constants of their own each time.
bool settle(Context& c, const std::vector<AbstractValue>& inputs) {
  bool changed = share_parts(c.graph);
  c.facts = find_facts(c.graph, inputs);
  while (answer_questions(c.graph, c.facts)) {
    changed = true;
    share_parts(c.graph);
    c.facts = find_facts(c.graph, inputs);
  }
  return changed;
}

// Whether inputs have dimensions is checked only if it tells the dtype of anything.
bool run_answer_questions(Context& c) {
  const auto fewer = without_dims(c.inputs);
  bool changed = settle(c, fewer);
  const Facts all = find_facts(c.graph, c.inputs);
  if (tells_more(*c.graph, all, c.facts)) {
    changed |= settle(c, c.inputs);
  } else {
    c.inputs = fewer;
  }
  return changed;
}

bool run_legalize(Context& c) {
  legalize(c.graph, c.facts, c.inputs, !c.examples.empty());
  return true;
}

bool run_optimize_frozen_graph(Context& c) {
  torch::jit::OptimizeFrozenGraph(c.graph, /*optimize_numerics=*/false);
  return true;
}

// Where nothing was decided by a device, it may be moved as PyTorch's own can.
bool run_guard_devices(Context& c) {
  return c.has_casts && c.check_inputs && guard_devices(*c.graph, c.known_self);
}

bool run_guard_autocast(Context& c) {
  return guard_autocast(*c.graph, c.self ? known_of(c.self) : AbstractValue(), c.inputs);
}

}  // namespace

const std::vector<Pass>& freezing() {
  static const auto& passes = *new std::vector<Pass>{
      {"check_freezable", run<check_freezable>, Phase::lowered, Phase::lowered, Kind::meaning},
      {"check_writes", run<check_writes>, Phase::lowered, Phase::lowered, Kind::meaning},
      {"mark_modes", run<mark_modes>, Phase::lowered, Phase::lowered, Kind::meaning},
      {"keep_dim", run<keep_dim>, Phase::lowered, Phase::lowered, Kind::quirk},
      {"write_queries", run<ask_and_write_queries>, Phase::lowered, Phase::lowered, Kind::meaning},
      {"keep_detach", run<hide_detach>, Phase::lowered, Phase::lowered, Kind::quirk},
      {"keep_results", run<mark_results>, Phase::lowered, Phase::lowered, Kind::quirk},
      {"unmark_loops", run<unmark_loops>, Phase::lowered, Phase::freezable, Kind::meaning},
  };
  return passes;
}

const std::vector<Pass>& deciding() {
  static const auto& passes = *new std::vector<Pass>{
      {"keep_detach", run<show_detach>, Phase::freezable, Phase::freezable, Kind::quirk},
      {"keep_results", run<unmark_results>, Phase::freezable, Phase::freezable, Kind::quirk},
      {"fold_weights", run<fold_weights>, Phase::freezable, Phase::freezable, Kind::speed,
       For::numerics},
      {"decompose", run<decompose>, Phase::freezable, Phase::freezable, Kind::meaning},
      // What definitions ask.
      {"keep_dim", run<keep_dim>, Phase::freezable, Phase::freezable, Kind::quirk},
      {"mark_loops", run<mark_loops>, Phase::freezable, Phase::decided, Kind::meaning},
      {"remove_list_mutation", run<torch::jit::RemoveListMutation>, Phase::decided, Phase::decided,
       Kind::meaning},
      {"inputs", run_inputs, Phase::decided, Phase::decided, Kind::meaning},
      {"answer_questions", run_answer_questions, Phase::decided, Phase::decided, Kind::meaning},
      {"write_queries", run<refuse_open_questions>, Phase::decided, Phase::decided, Kind::meaning},
      {"promote_operands", run<promote_operands>, Phase::decided, Phase::decided, Kind::quirk,
       For::all, Reads::facts},
  };
  return passes;
}

const std::vector<Pass>& exporting() {
  static const auto& passes = *new std::vector<Pass>{
      {"write_queries", run<ask_and_write_queries>, Phase::lowered, Phase::lowered, Kind::meaning},
      {"unmark_loops", run<unmark_loops>, Phase::lowered, Phase::freezable, Kind::meaning},
      {"decompose", run<decompose>, Phase::freezable, Phase::freezable, Kind::meaning},
  };
  return passes;
}

const std::vector<Pass>& legalizing() {
  static const auto& passes = *new std::vector<Pass>{
      {"check_python", run<check_python>, Phase::decided, Phase::decided, Kind::meaning},
      {"legalize", run_legalize, Phase::decided, Phase::legalized, Kind::meaning, For::all,
       Reads::facts},
      {"fold_legalized", run<fold_legalized>, Phase::legalized, Phase::legalized, Kind::meaning},
      {"optimize_frozen_graph", run_optimize_frozen_graph, Phase::legalized, Phase::legalized,
       Kind::speed},
      // Of loops over weights, which are unrolled by now.
      {"remove_list_mutation", run<torch::jit::RemoveListMutation>, Phase::legalized,
       Phase::legalized, Kind::speed},
      {"share_parts", run<share_parts>, Phase::legalized, Phase::legalized, Kind::speed},
      {"merge_branches", run<merge_branches>, Phase::legalized, Phase::legalized, Kind::speed},
      {"write_activations", run<write_activations>, Phase::legalized, Phase::legalized, Kind::quirk,
       For::all, Reads::facts},
      {"functionalize", run<functionalize>, Phase::legalized, Phase::legalized, Kind::speed,
       For::servers, Reads::facts},
      {"fuse_attention", run<fuse_attention>, Phase::legalized, Phase::legalized, Kind::speed,
       For::servers, Reads::facts},
      {"channels_last", run<channels_last>, Phase::legalized, Phase::legalized, Kind::speed,
       For::servers},
      // From here on nothing computes constants in advance, and nothing takes views away.
      {"keep_zero_dim", run<keep_zero_dim>, Phase::legalized, Phase::legalized, Kind::quirk,
       For::all, Reads::facts},
      {"keep_in_place", run<keep_in_place>, Phase::legalized, Phase::legalized, Kind::quirk,
       For::all, Reads::facts},
      {"unmark_loops", run<unmark_loops>, Phase::legalized, Phase::stock, Kind::meaning},
      {"keep_gradients", run<keep_gradients>, Phase::stock, Phase::stock, Kind::quirk},
      {"keep_addmm", run<keep_addmm>, Phase::stock, Phase::stock, Kind::quirk},
      {"write_strides", run<write_strides>, Phase::stock, Phase::stock, Kind::quirk},
      {"detach_sizes", run<detach_sizes>, Phase::stock, Phase::stock, Kind::quirk},
      {"fuse_pointwise", run<fuse_pointwise>, Phase::stock, Phase::stock, Kind::speed,
       For::servers},
      {"widen_products", run<widen_products>, Phase::stock, Phase::stock, Kind::speed,
       For::servers},
      {"keep_results", run<keep_results>, Phase::stock, Phase::stock, Kind::quirk},
      {"annotate_elements", run<annotate_elements>, Phase::stock, Phase::stock, Kind::quirk},
      {"guard_devices", run_guard_devices, Phase::stock, Phase::stock, Kind::meaning},
      {"guard_autocast", run_guard_autocast, Phase::stock, Phase::stock, Kind::meaning},
  };
  return passes;
}

const std::vector<Pass>& mending() {
  static const auto& passes = *new std::vector<Pass>{
      {"write_queries", run<write_queries>, Phase::inlined, Phase::stock, Kind::meaning},
      {"round_products", run<round_products>, Phase::stock, Phase::stock, Kind::quirk, For::exact},
      {"keep_results", run<keep_results>, Phase::stock, Phase::stock, Kind::quirk},
      {"annotate_elements", run<annotate_elements>, Phase::stock, Phase::stock, Kind::quirk},
  };
  return passes;
}

}  // namespace jit_amp
