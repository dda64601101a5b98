#include "pipelines/freeze.h"

#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>

#include "analysis/expected.h"
#include "analysis/inputs.h"
#include "core/graphs.h"
#include "core/loops.h"
#include "passes/export/answer_questions.h"
#include "passes/export/check_freezable.h"
#include "passes/export/check_writes.h"
#include "passes/export/decompose.h"
#include "passes/export/fold_sealed.h"
#include "passes/export/fold_weights.h"
#include "passes/export/merge_branches.h"
#include "passes/export/promote_operands.h"
#include "passes/export/seal.h"
#include "passes/export/share_parts.h"
#include "passes/export/write_questions.h"
#include "passes/quirks/detach_sizes.h"
#include "passes/quirks/keep_addmm.h"
#include "passes/quirks/keep_detach.h"
#include "passes/quirks/keep_dim.h"
#include "passes/quirks/keep_gradients.h"
#include "passes/quirks/keep_in_place.h"
#include "passes/quirks/keep_zero_dim.h"
#include "passes/quirks/write_strides.h"
#include "passes/server/channels_last.h"
#include "passes/server/functionalize.h"
#include "passes/server/fuse_attention.h"
#include "passes/server/fuse_pointwise.h"
#include "passes/server/widen_products.h"

namespace jit_amp {
namespace {

bool run_check_freezable(Context& c) {
  check_freezable(*c.graph);
  return false;
}

bool run_check_writes(Context& c) {
  check_writes(c.graph);
  return false;
}

bool run_write_questions(Context& c) { return write_questions(*c.graph); }

bool run_hide_detach(Context& c) { return hide_detach(*c.graph); }

bool run_show_detach(Context& c) { return show_detach(*c.graph); }

bool run_unmark_loops(Context& c) { return unmark_loops(*c.graph); }

bool run_fold_weights(Context& c) { return fold_weights(c.graph); }

bool run_decompose(Context& c) { return decompose(c.graph); }

bool run_keep_dim(Context& c) { return keep_dim(*c.graph); }

bool run_mark_loops(Context& c) { return mark_loops(*c.graph); }

bool run_remove_list_mutation(Context& c) { return torch::jit::RemoveListMutation(c.graph); }

// What is known of a call's arguments: from examples, or from what would fail without it. Nothing
// where the artefact has no check of it.
bool run_inputs(Context& c) {
  if (c.check_inputs) {
    c.inputs = c.examples.empty() ? expected_inputs(c.graph) : inputs_of(*c.graph, c.examples);
  }
  for (size_t i = 0; i < c.inputs.size(); ++i) {
    if (!c.graph->inputs()[i]->hasUses()) {  // nothing is taken for granted of it, or checked
      c.inputs[i] = {};
    }
  }
  if (c.is_alone) {
    c.inputs.resize(std::max<size_t>(c.inputs.size(), 1));
    c.inputs[0] = known_of(c.self);
  }
  return false;
}

// Answers until nothing more follows. PyTorch's constant propagation makes parts of a weight
// constants of their own each time.
bool settle(Context& c, const std::vector<Known>& inputs) {
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

bool run_promote_operands(Context& c) { return promote_operands(c.graph, c.facts); }

bool run_seal(Context& c) {
  seal(c.graph, c.facts, c.inputs, !c.examples.empty());
  return true;
}

bool run_fold_sealed(Context& c) { return fold_sealed(c.graph); }

bool run_optimize_frozen_graph(Context& c) {
  torch::jit::OptimizeFrozenGraph(c.graph, /*optimize_numerics=*/false);
  return true;
}

bool run_share_parts(Context& c) { return share_parts(c.graph); }

bool run_channels_last(Context& c) { return channels_last(c.graph); }

bool run_fuse_pointwise(Context& c) { return fuse_pointwise(*c.graph); }

bool run_widen_products(Context& c) { return widen_products(*c.graph); }

bool run_merge_branches(Context& c) { return merge_branches(c.graph); }

bool run_fuse_attention(Context& c) { return fuse_attention(c.graph, c.facts); }

bool run_keep_gradients(Context& c) { return keep_gradients(*c.graph); }

bool run_keep_addmm(Context& c) { return keep_addmm(*c.graph); }

bool run_functionalize(Context& c) { return functionalize(c.graph, c.facts, is_for_server(c)); }

bool run_keep_zero_dim(Context& c) { return keep_zero_dim(*c.graph, c.facts); }

bool run_keep_in_place(Context& c) { return keep_in_place(*c.graph, c.facts); }

bool run_write_strides(Context& c) { return write_strides(*c.graph); }

bool run_detach_sizes(Context& c) { return detach_sizes(*c.graph); }

}  // namespace

const std::vector<Pass>& exporting() {
  static const auto& passes = *new std::vector<Pass>{
      {"check_freezable", run_check_freezable, Phase::lowered, Phase::lowered},
      {"check_writes", run_check_writes, Phase::lowered, Phase::lowered},
      {"keep_dim", run_keep_dim, Phase::lowered, Phase::lowered, Kind::quirk},
      {"write_questions", run_write_questions, Phase::lowered, Phase::lowered},
      {"keep_detach", run_hide_detach, Phase::lowered, Phase::lowered, Kind::quirk},
      {"unmark_loops", run_unmark_loops, Phase::lowered, Phase::exported},
  };
  return passes;
}

const std::vector<Pass>& deciding() {
  static const auto& passes = *new std::vector<Pass>{
      {"keep_detach", run_show_detach, Phase::exported, Phase::exported, Kind::quirk},
      {"fold_weights", run_fold_weights, Phase::exported, Phase::exported, Kind::speed,
       For::numerics},
      {"decompose", run_decompose, Phase::exported, Phase::exported},
      // What definitions ask.
      {"keep_dim", run_keep_dim, Phase::exported, Phase::exported, Kind::quirk},
      {"mark_loops", run_mark_loops, Phase::exported, Phase::decided},
      {"remove_list_mutation", run_remove_list_mutation, Phase::decided, Phase::decided},
      {"inputs", run_inputs, Phase::decided, Phase::decided},
      {"answer_questions", run_answer_questions, Phase::decided, Phase::decided},
      {"promote_operands", run_promote_operands, Phase::decided, Phase::decided, Kind::speed,
       For::all, Reads::facts},
  };
  return passes;
}

const std::vector<Pass>& interpreting() {
  static const auto& passes = *new std::vector<Pass>{
      {"write_questions", run_write_questions, Phase::lowered, Phase::lowered},
      {"unmark_loops", run_unmark_loops, Phase::lowered, Phase::exported},
      {"decompose", run_decompose, Phase::exported, Phase::exported},
  };
  return passes;
}

const std::vector<Pass>& sealing() {
  static const auto& passes = *new std::vector<Pass>{
      {"seal", run_seal, Phase::decided, Phase::sealed, Kind::meaning, For::all, Reads::facts},
      {"fold_sealed", run_fold_sealed, Phase::sealed, Phase::sealed},
      {"optimize_frozen_graph", run_optimize_frozen_graph, Phase::sealed, Phase::sealed,
       Kind::speed},
      {"share_parts", run_share_parts, Phase::sealed, Phase::sealed, Kind::speed},
      {"merge_branches", run_merge_branches, Phase::sealed, Phase::sealed, Kind::speed},
      {"functionalize", run_functionalize, Phase::sealed, Phase::sealed, Kind::speed, For::all,
       Reads::facts},
      {"fuse_attention", run_fuse_attention, Phase::sealed, Phase::sealed, Kind::speed,
       For::servers, Reads::facts},
      {"channels_last", run_channels_last, Phase::sealed, Phase::sealed, Kind::speed, For::servers},
      {"keep_zero_dim", run_keep_zero_dim, Phase::sealed, Phase::sealed, Kind::quirk, For::all,
       Reads::facts},
      {"keep_in_place", run_keep_in_place, Phase::sealed, Phase::sealed, Kind::quirk, For::all,
       Reads::facts},
      {"unmark_loops", run_unmark_loops, Phase::sealed, Phase::stock},
      {"keep_gradients", run_keep_gradients, Phase::stock, Phase::stock, Kind::quirk},
      {"keep_addmm", run_keep_addmm, Phase::stock, Phase::stock, Kind::quirk},
      {"write_strides", run_write_strides, Phase::stock, Phase::stock, Kind::quirk},
      {"detach_sizes", run_detach_sizes, Phase::stock, Phase::stock, Kind::quirk},
      {"fuse_pointwise", run_fuse_pointwise, Phase::stock, Phase::stock, Kind::speed, For::servers},
      {"widen_products", run_widen_products, Phase::stock, Phase::stock, Kind::speed, For::servers},
  };
  return passes;
}

}  // namespace jit_amp
