#include "pipelines/script.h"

#include <torch/csrc/jit/passes/constant_propagation.h>

#include "core/ambient.h"
#include "core/loops.h"
#include "passes/lowering/enter_scopes.h"
#include "passes/lowering/for_interpreter.h"
#include "passes/lowering/run_tasks.h"
#include "passes/lowering/share_casts.h"
#include "passes/quirks/files/write_numbers.h"
#include "passes/quirks/operators/index_devices.h"
#include "passes/quirks/operators/round_products.h"
#include "passes/quirks/operators/tell_aliases.h"
#include "passes/source/flatten.h"
#include "passes/source/fold_constants.h"
#include "passes/source/name_convolutions.h"
#include "passes/source/write_operators.h"

namespace jit_amp {
namespace {

bool run_flatten(Context& c) {
  c.graph = flatten(*c.function, c.self, /*is_final=*/c.destination == Destination::stock);
  return true;
}

bool run_cast_io(Context& c) { return c.io_dtype && cast_io(c.graph, *c.io_dtype, c.examples); }

bool run_fix_attributes(Context& c) {
  c.reads = read_attributes(c.graph, c.self);
  return !c.reads.empty();
}

bool run_lower(Context& c) {
  c.scopes = find_scopes(*c.graph, c.entry);  // it names nodes: nothing may come in between
  return lower(c.graph, c.scopes, c.entry, c.destination);
}

bool run_enter_scopes(Context& c) {
  c.scopes = find_scopes(*c.graph, c.entry);
  return enter_scopes(*c.graph, c.scopes);
}

// As outside any autocast: what is computed here is computed once, for all calls.
bool run_constant_propagation(Context& c) {
  const NoAutocastGuard off;
  return torch::jit::ConstantPropagation(c.graph);
}

}  // namespace

const std::vector<Pass>& flattening() {
  static const auto& passes = *new std::vector<Pass>{
      {"flatten", run_flatten, Phase::source, Phase::inlined, Kind::meaning},
      {"cast_io", run_cast_io, Phase::inlined, Phase::inlined, Kind::meaning},
      {"name_convolutions", run<name_convolutions>, Phase::inlined, Phase::inlined, Kind::meaning},
      {"index_devices", run<index_devices>, Phase::inlined, Phase::inlined, Kind::quirk},
      {"write_numbers", run<write_numbers>, Phase::inlined, Phase::inlined, Kind::quirk},
      {"write_operators", run<write_operators>, Phase::inlined, Phase::inlined, Kind::meaning},
      {"round_products", run<round_products>, Phase::inlined, Phase::inlined, Kind::quirk,
       For::exact},
      {"mark_loops", run<mark_loops>, Phase::inlined, Phase::flat, Kind::meaning},
      {"tell_aliases", run<tell_aliases>, Phase::flat, Phase::flat, Kind::quirk},
      {"fold_constants", run<fold_constants>, Phase::flat, Phase::flat, Kind::meaning},
      {"fix_attributes", run_fix_attributes, Phase::flat, Phase::flat, Kind::meaning},
  };
  return passes;
}

const std::vector<Pass>& lowering() {
  static const auto& passes = *new std::vector<Pass>{
      {"lower", run_lower, Phase::flat, Phase::lowered, Kind::meaning},
      {"share_casts", run<share_casts>, Phase::lowered, Phase::lowered, Kind::speed},
  };
  return passes;
}

const std::vector<Pass>& entering() {
  static const auto& passes = *new std::vector<Pass>{
      {"run_tasks", run<run_tasks>, Phase::flat, Phase::flat, Kind::meaning},
      {"enter_scopes", run_enter_scopes, Phase::flat, Phase::lowered, Kind::meaning},
      {"for_interpreter", run<for_interpreter>, Phase::lowered, Phase::runnable, Kind::quirk},
  };
  return passes;
}

const std::vector<Pass>& running() {
  static const auto& passes = *new std::vector<Pass>{
      {"constant_propagation", run_constant_propagation, Phase::lowered, Phase::lowered,
       Kind::speed},
      {"for_interpreter", run<for_interpreter>, Phase::lowered, Phase::runnable, Kind::quirk},
  };
  return passes;
}

}  // namespace jit_amp
