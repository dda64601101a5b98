#include "pipelines/modules.h"

#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/modules.h"
#include "analysis/state.h"
#include "core/copies.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "passes/freeze/check_python.h"
#include "passes/freeze/declare_interfaces.h"
#include "passes/freeze/join_weights.h"
#include "passes/freeze/keep_state.h"
#include "passes/freeze/own_constants.h"
#include "passes/quirks/freezing/own_callstacks.h"
#include "passes/quirks/freezing/write_devices.h"
#include "passes/quirks/optimizer/keep_results.h"
#include "passes/server/pack_weights.h"
#include "passes/server/share_conditions.h"
#include "passes/source/cast_io.h"
#include "passes/source/cast_tensors.h"
#include "pipelines/freeze.h"
#include "pipelines/script.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_forward(const KeptMethod& kept) { return kept.path.empty() && kept.name == "forward"; }

// Null for what is no method in TorchScript.
GraphFunction* function_of(const Module& module, const KeptMethod& kept) {
  const auto method = submodule(module, kept.path).find_method(kept.name);
  return method ? tryToGraphFunction(method->function()) : nullptr;
}

// The methods that are kept, each graph once.
std::vector<std::pair<KeptMethod, GraphFunction*>> kept_functions(const ModuleContext& c) {
  std::vector<std::pair<KeptMethod, GraphFunction*>> functions;
  std::unordered_set<GraphFunction*> seen;
  for (const KeptMethod& kept : c.kept) {
    GraphFunction* function = function_of(c.module, kept);
    if (function && seen.insert(function).second) {
      functions.emplace_back(kept, function);
    }
  }
  return functions;
}

// The methods that are kept, with the module of each: one graph may be those of several.
std::vector<FlatMethod> flat_methods(const ModuleContext& c) {
  std::vector<FlatMethod> flat;
  for (const KeptMethod& kept : c.kept) {
    if (const GraphFunction* function = function_of(c.module, kept)) {
      flat.push_back({function->graph(), submodule(c.module, kept.path),
                      kept.path.empty() ? "" : kept.path + "."});
    }
  }
  return flat;
}

// What ignores autocast is known by its module, which is another one here.
bool run_own_containers(ModuleContext& c) {
  c.module = with_own_containers(c.module);
  copy_ignored(c.given, c.module);
  return true;
}

bool run_unpack(ModuleContext& c) {
  unpack(c.module);
  return true;
}

// What a scope has read is part of the frozen module.
void check_not_preserved(const std::vector<Read>& reads,
                         const std::vector<std::string>& preserved_attrs) {
  for (const Read& read : reads) {
    for (const std::string& kept : preserved_attrs) {
      if (read.path == kept || read.path.rfind(kept + ".", 0) == 0) {
        throw diagnostic(Diagnostic::preserved_scope, nullptr, {read.path, kept});
      }
    }
  }
}

// Refuses results in which there are tensors that cannot be cast.
void check_results(const ModuleContext& c) {
  for (const auto& [kept, function] : kept_functions(c)) {
    const auto type = function->getSchema().returns().at(0).type();
    TORCH_CHECK_TYPE(can_cast_tensors(type), "jit_amp.freeze: io_dtype: `",
                     kept.path.empty() ? kept.name : kept.path + "." + kept.name,
                     "` returns a value of type ", type->annotation_str(),
                     ", in which tensors cannot be cast: return them in tuples, lists and "
                     "dictionaries");
  }
}

// Every kept method as PyTorch's freezing takes it, in the place of what it was.
bool run_lower_methods(ModuleContext& c) {
  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> lowered;
  if (c.io) {
    check_results(c);
  }
  for (const KeptMethod& kept : c.kept) {
    Context context;
    context.function = function_of(c.module, kept);
    if (!context.function) {
      continue;
    }
    context.self = submodule(c.module, kept.path)._ivalue();
    context.destination = Destination::stock;
    context.target = c.target;
    if (c.io) {
      context.io_dtype = {c.io->dtype, dtype_of_weights(c.module)};
      context.examples = is_forward(kept) ? c.io->examples : std::vector<Stack>();
    }
    refusing_unfit_graphs([&] {
      run_pipeline(flattening(), context);
      run_pipeline(lowering(), context);
      check_not_preserved(context.reads, c.preserved_attrs);
      run_pipeline(freezing(), context);
    });
    const auto [known, is_new] = lowered.emplace(context.function, context.graph);
    if (!is_new && text_of(*known->second) != text_of(*context.graph)) {
      throw diagnostic(Diagnostic::preserved_twice, nullptr, {kept.path + "." + kept.name});
    }
  }
  for (const auto& [function, graph] : lowered) {  // once none calls another any more
    replace_contents(*function->graph(), *graph);
  }
  return true;
}

bool run_write_devices(ModuleContext& c) {
  std::vector<std::pair<std::shared_ptr<Graph>, ObjectPtr>> graphs;
  for (const FlatMethod& method : flat_methods(c)) {
    graphs.emplace_back(method.graph, method.self._ivalue());
  }
  return write_devices(c.module, graphs);
}

// PyTorch's freezing takes `training` from a module that a task runs on, and leaves what reads it.
void check_attributes(const std::vector<FlatMethod>& methods) {
  for (const FlatMethod& method : methods) {
    for (const Node* node : all_nodes(*method.graph, prim::GetAttr)) {
      const auto type = node->input()->type()->cast<c10::ClassType>();
      TORCH_CHECK(!type || type->hasAttribute(node->s(attr::name)), "freezing has removed `",
                  node->s(attr::name),
                  "` of a module that a task of torch.jit.fork runs on: "
                  "call its eval(), or run it outside the task");
    }
  }
}

// PyTorch's freezing, in place, of methods whose calls are inlined.
bool run_freeze_module(ModuleContext& c) {
  refusing_unfit_graphs([&] {
    const auto flat = flat_methods(c);
    std::vector<std::string> kept = state_attributes(flat);
    kept.insert(kept.end(), c.preserved_attrs.begin(), c.preserved_attrs.end());
    freeze_module_inplace(&c.module, kept);
    check_attributes(flat);
  });
  return true;
}

bool run_declare_interfaces(ModuleContext& c) { return declare_interfaces(c.module); }

bool run_keep_state(ModuleContext& c) {
  bool changed = false;
  for (const auto& [kept, function] : kept_functions(c)) {
    changed |= keep_state(function->graph(), submodule(c.module, kept.path));
  }
  return changed;
}

bool has_casts(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->kind() == ops::cast || node->kind() == ops::opt_dtype || ops::is_scoped(node);
  });
}

// Whoever has the frozen module may assign to what is preserved.
void forget(AbstractValue& known, const std::string& path) {
  const size_t dot = path.find('.');
  for (size_t i = 0; i < known.keys.size(); ++i) {
    if (known.keys[i].toStringRef() == path.substr(0, dot)) {
      if (dot == std::string::npos) {
        known.parts[i] = {};
      } else {
        forget(known.parts[i], path.substr(dot + 1));
      }
    }
  }
}

bool run_decide_methods(ModuleContext& c) {
  for (const auto& [kept, function] : kept_functions(c)) {
    Context& context = c.methods.emplace_back();
    context.self = c.module._ivalue();
    if (c.kept.size() == 1) {  // no other method writes to what this one reads
      context.known_self = known_of(context.self);
      for (const std::string& path : c.preserved_attrs) {
        forget(context.known_self, path);
      }
    }
    context.target = c.target;
    context.check_inputs = c.check_inputs;
    context.graph = function->graph();
    context.phase = Phase::freezable;
    context.has_casts = has_casts(*context.graph);
    if (is_forward(kept)) {
      context.examples = c.examples;
    }
    refusing_unfit_graphs([&] { run_pipeline(deciding(), context); });
  }
  return true;
}

bool run_legalize_methods(ModuleContext& c) {
  for (Context& context : c.methods) {
    refusing_unfit_graphs([&] { run_pipeline(legalizing(), context); });
  }
  return true;
}

bool run_own_constants(ModuleContext& c) {
  own_constants(graphs_of(c), c.given);
  return true;
}

bool run_pack_weights(ModuleContext& c) {
  auto packable = packable_weights(
      c.module, c.examples.empty() ? std::nullopt : std::optional(c.examples.front()));
  std::vector<at::Tensor> weights;
  std::vector<std::vector<int64_t>> plans;
  for (const auto& each : packable) {
    weights.push_back(each.weight);
    plans.push_back(each.plan);
  }
  const Module packed = c.script_packed(std::move(weights), std::move(plans));
  use_packed(c.module, packable, packed);
  packed.get_method("pack")({});
  return true;
}

bool run_share_conditions(ModuleContext& c) {
  share_conditions(c.module);
  return true;
}

// Runs `pass` on all graphs together.
template <auto pass>
bool run_on_all(ModuleContext& c) {
  pass(graphs_of(c));
  return true;
}

// Runs `pass` on each graph.
template <auto pass>
bool run_on_each(ModuleContext& c) {
  for (auto graph : graphs_of(c)) {
    if constexpr (std::is_invocable_v<decltype(pass), Graph&>) {
      pass(*graph);
    } else {
      pass(graph);
    }
  }
  return true;
}

// The same as cast_io's row of `flattening` does, of a module without scopes.
bool run_cast_io(ModuleContext& c) {
  if (!c.io) {
    return false;
  }
  check_results(c);
  const IoDtype dtypes{c.io->dtype, dtype_of_weights(c.module)};
  for (const auto& [kept, function] : kept_functions(c)) {
    cast_io(function->graph(), dtypes, is_forward(kept) ? c.io->examples : std::vector<Stack>());
  }
  return true;
}

}  // namespace

std::vector<KeptMethod> kept_methods(const Module& module,
                                     const std::vector<std::string>& preserved_attrs) {
  std::vector<KeptMethod> kept{{"", "forward"}};
  for (const std::string& preserved : preserved_attrs) {
    const size_t dot = preserved.rfind('.');
    const std::string path = dot == std::string::npos ? "" : preserved.substr(0, dot);
    const std::string name = dot == std::string::npos ? preserved : preserved.substr(dot + 1);
    const Module owner = submodule(module, path);
    if (owner.find_method(name)) {
      kept.push_back({path, name});
    } else if (owner.hasattr(name) && owner.attr(name).isModule()) {
      for (const auto& below : owner.attr(name).toModule().named_modules()) {
        for (const Method& method : below.value.get_methods()) {
          kept.push_back(
              {below.name.empty() ? preserved : preserved + "." + below.name, method.name()});
        }
      }
    }
  }
  return kept;
}

std::vector<std::shared_ptr<Graph>> graphs_of(const ModuleContext& context) {
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& [kept, function] : kept_functions(context)) {
    graphs.push_back(function->graph());
  }
  return graphs;
}

const std::vector<ModulePass>& freezing_weights() {
  static const auto& passes = *new std::vector<ModulePass>{
      // PyTorch's freezing writes to lists, dictionaries and objects, and what it makes of weights
      // that are packed cannot be saved.
      {"own_containers", run_own_containers, Phase::source, Phase::source, Kind::meaning},
      {"pack_weights", run_unpack, Phase::source, Phase::source, Kind::meaning},
      {"lower_methods", run_lower_methods, Phase::source, Phase::freezable, Kind::meaning},
      {"write_devices", run_write_devices, Phase::freezable, Phase::freezable, Kind::quirk},
      {"freeze_module", run_freeze_module, Phase::freezable, Phase::freezable, Kind::meaning},
      {"declare_interfaces", run_declare_interfaces, Phase::freezable, Phase::freezable,
       Kind::meaning},
      {"keep_state", run_keep_state, Phase::freezable, Phase::freezable, Kind::meaning},
      {"decide_methods", run_decide_methods, Phase::freezable, Phase::decided, Kind::meaning},
  };
  return passes;
}

const std::vector<ModulePass>& finishing() {
  static const auto& passes = *new std::vector<ModulePass>{
      {"legalize_methods", run_legalize_methods, Phase::decided, Phase::stock, Kind::meaning},
      {"own_constants", run_own_constants, Phase::stock, Phase::stock, Kind::meaning},
      {"join_weights", run_on_all<join_weights>, Phase::stock, Phase::stock, Kind::speed},
      {"own_callstacks", run_on_all<own_callstacks>, Phase::stock, Phase::stock, Kind::quirk},
  };
  return passes;
}

const std::vector<ModulePass>& packing() {
  static const auto& passes = *new std::vector<ModulePass>{
      {"pack_weights", run_pack_weights, Phase::stock, Phase::stock, Kind::speed, For::servers},
      {"share_conditions", run_share_conditions, Phase::stock, Phase::stock, Kind::speed,
       For::servers},
  };
  return passes;
}

const std::vector<ModulePass>& freezing_plain() {
  static const auto& passes = *new std::vector<ModulePass>{
      {"own_containers", run_own_containers, Phase::source, Phase::source, Kind::meaning},
      {"pack_weights", run_unpack, Phase::source, Phase::source, Kind::meaning},
      {"inline", run_on_each<Inline>, Phase::source, Phase::inlined, Kind::meaning},
      {"cast_io", run_cast_io, Phase::inlined, Phase::inlined, Kind::meaning},
      {"keep_results", run_on_each<mark_results>, Phase::inlined, Phase::inlined, Kind::quirk},
      {"freeze_module", run_freeze_module, Phase::inlined, Phase::inlined, Kind::meaning},
      {"keep_results", run_on_each<unmark_results>, Phase::inlined, Phase::inlined, Kind::quirk},
      {"check_python", run_on_each<check_python>, Phase::inlined, Phase::inlined, Kind::meaning},
      {"keep_state", run_keep_state, Phase::inlined, Phase::inlined, Kind::meaning},
      {"own_constants", run_own_constants, Phase::inlined, Phase::inlined, Kind::meaning},
      {"join_weights", run_on_all<join_weights>, Phase::inlined, Phase::inlined, Kind::speed},
      {"own_callstacks", run_on_all<own_callstacks>, Phase::inlined, Phase::inlined, Kind::quirk},
  };
  return passes;
}

}  // namespace jit_amp
