#include "pipelines/script.h"

#include <torch/csrc/jit/passes/constant_propagation.h>

#include "core/ambient.h"
#include "core/loops.h"
#include "passes/lowering/enter_scopes.h"
#include "passes/lowering/for_interpreter.h"
#include "passes/lowering/share_casts.h"
#include "passes/quirks/tell_aliases.h"
#include "passes/quirks/write_numbers.h"
#include "passes/source/flatten.h"
#include "passes/source/fold_constants.h"
#include "passes/source/name_convolutions.h"
#include "passes/source/write_powers.h"

namespace jit_amp {
namespace {

bool run_flatten(Context& c) {
  c.graph = flatten(*c.function, c.self, /*is_final=*/c.product == Product::exported);
  return true;
}

bool run_name_convolutions(Context& c) { return name_convolutions(c.graph); }

bool run_write_numbers(Context& c) { return write_numbers(*c.graph); }

bool run_write_powers(Context& c) { return write_powers(*c.graph); }

bool run_mark_loops(Context& c) { return mark_loops(*c.graph); }

bool run_tell_aliases(Context& c) { return tell_aliases(c.graph); }

bool run_fold_constants(Context& c) { return fold_constants(c.graph); }

bool run_fix_attributes(Context& c) {
  c.reads = read_attributes(c.graph, c.self);
  return !c.reads.empty();
}

bool run_lower(Context& c) {
  c.scopes = find_scopes(*c.graph, c.entry);  // it names nodes: nothing may come in between
  return lower(c.graph, c.scopes, c.entry, c.product);
}

bool run_enter_scopes(Context& c) {
  c.scopes = find_scopes(*c.graph, c.entry);
  return enter_scopes(*c.graph, c.scopes);
}

bool run_share_casts(Context& c) { return share_casts(c.graph); }

// As outside any autocast: what is computed here is computed once, for all calls.
bool run_constant_propagation(Context& c) {
  const Suspended off;
  return torch::jit::ConstantPropagation(c.graph);
}

bool run_for_interpreter(Context& c) { return for_interpreter(*c.graph); }

}  // namespace

const std::vector<Pass>& flattening() {
  static const auto& passes = *new std::vector<Pass>{
      {"flatten", run_flatten, Phase::source, Phase::inlined},
      {"name_convolutions", run_name_convolutions, Phase::inlined, Phase::inlined},
      {"write_numbers", run_write_numbers, Phase::inlined, Phase::inlined, Kind::quirk},
      {"write_powers", run_write_powers, Phase::inlined, Phase::inlined},
      {"mark_loops", run_mark_loops, Phase::inlined, Phase::flat},
      {"tell_aliases", run_tell_aliases, Phase::flat, Phase::flat, Kind::quirk},
      {"fold_constants", run_fold_constants, Phase::flat, Phase::flat},
      {"fix_attributes", run_fix_attributes, Phase::flat, Phase::flat},
  };
  return passes;
}

const std::vector<Pass>& lowering() {
  static const auto& passes = *new std::vector<Pass>{
      {"lower", run_lower, Phase::flat, Phase::lowered},
      {"share_casts", run_share_casts, Phase::lowered, Phase::lowered, Kind::speed},
  };
  return passes;
}

const std::vector<Pass>& recording() {
  static const auto& passes = *new std::vector<Pass>{
      {"enter_scopes", run_enter_scopes, Phase::flat, Phase::lowered},
      {"for_interpreter", run_for_interpreter, Phase::lowered, Phase::runnable, Kind::quirk},
  };
  return passes;
}

const std::vector<Pass>& running() {
  static const auto& passes = *new std::vector<Pass>{
      {"constant_propagation", run_constant_propagation, Phase::lowered, Phase::lowered,
       Kind::speed},
      {"for_interpreter", run_for_interpreter, Phase::lowered, Phase::runnable, Kind::quirk},
  };
  return passes;
}

}  // namespace jit_amp
