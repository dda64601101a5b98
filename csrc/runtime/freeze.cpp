#include "runtime/freeze.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "analysis/state.h"
#include "core/ambient.h"
#include "core/copies.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "passes/freeze/check_python.h"
#include "passes/freeze/join_weights.h"
#include "passes/freeze/keep_state.h"
#include "passes/freeze/own_constants.h"
#include "passes/quirks/keep_results.h"
#include "passes/quirks/own_callstacks.h"
#include "passes/quirks/write_devices.h"
#include "passes/server/pack_weights.h"
#include "passes/source/cast_io.h"
#include "passes/source/cast_tensors.h"
#include "pipelines/freeze.h"
#include "pipelines/script.h"
#include "runtime/attach.h"
#include "runtime/program.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

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

// A method that the frozen module keeps, and where.
struct Kept {
  std::string path;  // of its module
  std::string name;
};

// forward, and what the preserved attributes name: methods, or submodules with all of theirs.
std::vector<Kept> kept_methods(const Module& module,
                               const std::vector<std::string>& preserved_attrs) {
  std::vector<Kept> kept{{"", "forward"}};
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

// Null for what is no method in TorchScript.
GraphFunction* function_of(const Module& module, const Kept& kept) {
  const auto method = submodule(module, kept.path).find_method(kept.name);
  return method ? tryToGraphFunction(method->function()) : nullptr;
}

bool is_forward(const Kept& kept) { return kept.path.empty() && kept.name == "forward"; }

// Refuses results in which there are tensors that cannot be cast.
void check_results(const Module& module, const std::vector<Kept>& methods) {
  for (const Kept& kept : methods) {
    if (const GraphFunction* function = function_of(module, kept)) {
      const auto type = function->getSchema().returns().at(0).type();
      TORCH_CHECK_TYPE(can_cast_tensors(type), "jit_amp.freeze: io_dtype: `",
                       kept.path.empty() ? kept.name : kept.path + "." + kept.name,
                       "` returns a value of type ", type->annotation_str(),
                       ", in which tensors cannot be cast: return them in tuples, lists and "
                       "dictionaries");
    }
  }
}

// Every kept method as PyTorch's freezing takes it, in the place of what it was.
void lower_methods(const Module& module, const std::vector<Kept>& methods,
                   const std::vector<std::string>& preserved_attrs, const FreezeOptions& options) {
  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> lowered;
  if (options.io) {
    check_results(module, methods);
  }
  for (const Kept& kept : methods) {
    Context context;
    context.function = function_of(module, kept);
    if (!context.function) {
      continue;
    }
    context.self = submodule(module, kept.path)._ivalue();
    context.product = Product::stock;
    context.optimize_numerics = options.optimize_numerics;
    if (options.io) {
      context.io_dtype = {options.io->dtype, dtype_of_weights(module)};
      context.examples = is_forward(kept) ? options.io->examples : std::vector<Stack>();
    }
    refusing_unfit_graphs([&] {
      run_pipeline(flattening(), context);
      run_pipeline(lowering(), context);
      check_not_preserved(context.reads, preserved_attrs);
      run_pipeline(freezing(), context);
    });
    const auto [known, is_new] = lowered.emplace(context.function, context.graph);
    if (!is_new && text_of(*known->second) != text_of(*context.graph)) {
      throw diagnostic(Diagnostic::preserved_twice, nullptr, {kept.path + "." + kept.name});
    }
  }
  std::vector<std::pair<std::shared_ptr<Graph>, ObjectPtr>> flat;
  for (const auto& [function, graph] : lowered) {  // once none calls another any more
    replace_contents(*function->graph(), *graph);
  }
  for (const Kept& kept : methods) {
    if (GraphFunction* function = function_of(module, kept)) {
      flat.emplace_back(function->graph(), submodule(module, kept.path)._ivalue());
    }
  }
  write_devices(module, flat);
}

// PyTorch's freezing, in place, of methods whose calls are inlined; returns these.
std::vector<FlatMethod> freeze_in_place(Module& module, const std::vector<Kept>& methods,
                                        const std::vector<std::string>& preserved_attrs) {
  std::vector<FlatMethod> flat;
  for (const Kept& method : methods) {
    if (const GraphFunction* function = function_of(module, method)) {
      flat.push_back({function->graph(), submodule(module, method.path),
                      method.path.empty() ? "" : method.path + "."});
    }
  }
  std::vector<std::string> kept = state_attributes(flat);
  kept.insert(kept.end(), preserved_attrs.begin(), preserved_attrs.end());
  freeze_module_inplace(&module, kept);
  return flat;
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

// What PyTorch's freezing can be given: it writes to lists, dictionaries and objects, and what it
// makes of weights that are packed cannot be saved.
Module freezable(const Module& module) {
  Module own = with_own_containers(module);
  unpack(own);
  return own;
}

// Declares what a preserved module has behind an interface as of the class that it is of: the
// methods take its parts out of it, and a file says so by the class alone.
void declare_behind_interfaces(const Module& module) {
  for (const Module& each : module.modules()) {
    const auto type = each.type();
    for (size_t i = 0; i < type->numAttributes(); ++i) {
      const auto& value = each._ivalue()->getSlot(i);
      if (value.isModule() && type->getAttribute(i)->cast<c10::InterfaceType>()) {
        type->unsafeChangeAttributeType(type->getAttributeName(i), value.type());
      }
    }
  }
}

bool has_casts(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return node->kind() == ops::cast || node->kind() == ops::opt_dtype || ops::is_scoped(node);
  });
}

// The same as cast_io's row of `flattening` does, of a module without scopes.
void cast_inlined(const Module& module, const std::vector<Kept>& methods, const FreezeIo& io) {
  check_results(module, methods);
  const IoDtype dtypes{io.dtype, dtype_of_weights(module)};
  std::unordered_set<GraphFunction*> done;
  for (const Kept& kept : methods) {
    GraphFunction* function = function_of(module, kept);
    if (function && done.insert(function).second) {
      cast_io(function->graph(), dtypes, is_forward(kept) ? io.examples : std::vector<Stack>());
    }
  }
}

// A frozen module, and the graphs of its methods with what is known of their values.
struct Decided {
  Module frozen;
  std::vector<Context> methods;  // forward is the first
};

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

Decided decide(const Module& module, const std::vector<std::string>& preserved_attrs,
               const std::vector<Stack>& examples, const FreezeOptions& options) {
  Module copy = freezable(own_copy(module));
  copy_ignored(module, copy);
  const std::vector<Kept> kept = kept_methods(copy, preserved_attrs);
  lower_methods(copy, kept, preserved_attrs, options);
  refusing_unfit_graphs([&] { check_attributes(freeze_in_place(copy, kept, preserved_attrs)); });
  declare_behind_interfaces(copy);
  Decided made{copy, {}};
  std::unordered_set<GraphFunction*> done;
  for (const Kept& method : kept) {
    GraphFunction* function = function_of(made.frozen, method);
    if (!function || !done.insert(function).second) {
      continue;
    }
    keep_state(function->graph(), submodule(made.frozen, method.path));
    Context& context = made.methods.emplace_back();
    context.self = made.frozen._ivalue();
    if (kept.size() == 1) {  // no other method writes to what this one reads
      context.known_self = known_of(context.self);
      for (const std::string& path : preserved_attrs) {
        forget(context.known_self, path);
      }
    }
    context.optimize_numerics = options.optimize_numerics;
    context.for_server = options.for_server;
    context.check_inputs = options.check_inputs;
    context.graph = function->graph();
    context.phase = Phase::freezable;
    context.has_casts = has_casts(*context.graph);
    if (is_forward(method)) {
      context.examples = examples;
    }
    refusing_unfit_graphs([&] { run_pipeline(deciding(), context); });
  }
  return made;
}

}  // namespace

Module frozen_by_pytorch(const Module& module, const std::vector<std::string>& preserved_attrs,
                         const std::optional<FreezeIo>& io) {
  Module own = freezable(module.clone(/*inplace=*/true));
  const auto kept = kept_methods(own, preserved_attrs);
  for (const Kept& method : kept) {
    if (GraphFunction* function = function_of(own, method)) {
      Inline(*function->graph());
    }
  }
  if (io) {
    cast_inlined(own, kept, *io);
  }
  for (const Kept& method : kept) {
    if (GraphFunction* function = function_of(own, method)) {
      auto graph = function->graph();
      mark_results(graph);
    }
  }
  for (const FlatMethod& method : freeze_in_place(own, kept, preserved_attrs)) {
    unmark_results(*method.graph);
    check_python(*method.graph);
  }
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const auto& method : own.get_methods()) {
    keep_state(method.graph(), own);
    graphs.push_back(method.graph());
  }
  own_constants(graphs, module);
  join_weights(graphs);
  own_callstacks(graphs);
  return own;
}

Module freeze(const Module& module, const std::vector<std::string>& preserved_attrs,
              const std::vector<Stack>& examples, FreezeOptions options) {
  const NoAutocastGuard ambient;  // constants are folded here: as outside any autocast
  const Turn turn;
  Decided made = decide(module, preserved_attrs, examples, options);
  std::vector<std::shared_ptr<Graph>> graphs;
  for (Context& context : made.methods) {
    refusing_unfit_graphs([&] { run_pipeline(legalizing(), context); });
    graphs.push_back(context.graph);
  }
  own_constants(graphs, module);
  join_weights(graphs);
  own_callstacks(graphs);
  return made.frozen;
}

std::shared_ptr<Graph> known_graph(const Module& module, const std::vector<Stack>& examples) {
  const NoAutocastGuard ambient;
  const Turn turn;
  const Decided made = decide(module, {}, examples, FreezeOptions());
  const Context& forward = made.methods.at(0);
  return annotated(forward.graph, forward.facts);
}

}  // namespace jit_amp
