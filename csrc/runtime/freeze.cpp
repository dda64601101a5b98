#include "runtime/freeze.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/passes/freeze_module.h>
#include <torch/csrc/jit/passes/frozen_conv_folding.h>
#include <torch/csrc/jit/passes/frozen_graph_optimizations.h>
#include <torch/csrc/jit/passes/frozen_linear_folding.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <unordered_map>
#include <unordered_set>

#include "error.h"
#include "passes/answers.h"
#include "passes/decompose.h"
#include "passes/expected.h"
#include "passes/facts.h"
#include "passes/flatten.h"
#include "passes/inputs.h"
#include "passes/instance.h"
#include "passes/loops.h"
#include "passes/lower.h"
#include "passes/parts.h"
#include "passes/seal.h"
#include "passes/ship.h"
#include "passes/subgraphs.h"
#include "runtime/attach.h"
#include "runtime/graphs.h"
#include "runtime/ops.h"
#include "runtime/program.h"
#include "runtime/state.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// A cast of a constant weight, taken off its user for a while.
struct TakenCast {
  Node* user;
  size_t operand;
  Value* cpu;
  Value* cuda;
};

void take_weight_casts(Block* block, std::vector<TakenCast>& taken) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      take_weight_casts(inner, taken);
    }
    for (size_t i = 1; i < 3 && i < node->inputs().size(); ++i) {
      if (i == 2 && node->input(i)->mustBeNone() && !taken.empty() && taken.back().user == node) {
        // A bias that folding makes is cast as the weight is.
        taken.push_back({node, i, taken.back().cpu, taken.back().cuda});
      }
      Node* cast = node->input(i)->node();
      if (cast->kind() == ops::cast && cast->input(0)->node()->kind() == prim::Constant &&
          node->kind() != ops::cast) {
        taken.push_back({node, i, cast->input(1), cast->input(2)});
        node->replaceInput(i, cast->input(0));
      }
    }
  }
}

// A tensor that is added to a reduced result, or multiplied with it, decides about the dtype: it is
// not to be folded away. Numbers are.
std::vector<Node*> hide_tensors(Graph& graph) {
  std::vector<Node*> hidden;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::add && node->kind() != aten::sub && node->kind() != aten::mul &&
        node->kind() != aten::div) {
      continue;
    }
    for (size_t i = 0; i < 2; ++i) {
      Value* operand = node->input(i);
      if (operand->node()->kind() == prim::Constant &&
          operand->type()->kind() == c10::TypeKind::TensorType) {
        hidden.push_back(
            node->owningGraph()->create(ops::carried, {operand}, 1)->insertBefore(node));
        node->replaceInput(i, hidden.back()->output());
      }
    }
  }
  return hidden;
}

// PyTorch folds a batch norm, or arithmetic, into a conv or linear whose weight is a constant. A
// cast in between would hide the weight, and a weight rounded first would lose accuracy: so fold,
// then cast.
void fold_into_weights(std::shared_ptr<Graph>& graph) {
  std::vector<TakenCast> taken;
  take_weight_casts(graph->block(), taken);
  const auto hidden = taken.empty() ? std::vector<Node*>() : hide_tensors(*graph);
  FoldFrozenConvBatchnorm(graph);
  FoldFrozenLinearBatchnorm(graph);
  FoldFrozenConvAddOrSub(graph);
  FoldFrozenConvMulOrDiv(graph);
  for (Node* node : hidden) {
    node->output()->replaceAllUsesWith(node->input());
    node->destroy();
  }
  for (const TakenCast& cast : taken) {
    if (cast.user->input(cast.operand)->mustBeNone()) {
      continue;
    }
    const WithInsertPoint here(cast.user);
    Node* node = graph->insertNode(
        graph->create(ops::cast, {cast.user->input(cast.operand), cast.cpu, cast.cuda}, 1));
    node->output()->setType(c10::TensorType::get());
    cast.user->replaceInput(cast.operand, node->output());
  }
}

// What a scope has read is part of the artefact.
void check_not_preserved(const std::vector<Read>& reads,
                         const std::vector<std::string>& preserved_attrs) {
  for (const Read& read : reads) {
    for (const std::string& kept : preserved_attrs) {
      if (read.path == kept || read.path.rfind(kept + ".", 0) == 0) {
        throw AutocastError(
            c10::str("jit_amp: `", read.path, "` decides about an autocast scope, and `", kept,
                     "` is to be preserved: a frozen scope does not change any more\n\n",
                     "Instead: one artefact for each value of it"));
      }
    }
  }
}

// PyTorch's freezing has internal assertions against these.
void check_can_freeze(Graph& graph) {
  for (const Node* node : all_nodes(graph)) {
    if (node->kind() == prim::ModuleContainerIndex) {
      throw refusal(node, "a module that is chosen at run time, in a module that is to be frozen",
                    "`if` with a call of each module in a branch of its own");
    }
    if (node->kind() == prim::SetAttr && node->input(0)
                                                 ->type()
                                                 ->expect<c10::ClassType>()
                                                 ->getAttribute(node->s(attr::name))
                                                 ->kind() == c10::TypeKind::InterfaceType) {
      throw refusal(node,
                    c10::str("`", node->s(attr::name),
                             "`, a module behind an interface, is assigned in code that is to be "
                             "frozen"),
                    "`if` with a call of each module in a branch of its own");
    }
  }
}

// A method that the artefact keeps, and where.
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

bool holds_tensor(const Node* node) {
  return node->kind() == prim::Constant && node->hasAttribute(attr::value) &&
         node->kindOf(attr::value) == AttributeKind::t && node->t(attr::value).has_storage();
}

const void* storage_of(const at::Tensor& tensor) { return tensor.storage().unsafeGetStorageImpl(); }

// PyTorch's freezing leaves constants that are the given module's own tensors: what is loaded or
// trained into the module later would be in one half of the artefact, that which is not cast. What
// the graph writes to stays what it is, to whoever else has it.
void own_constants(const std::vector<std::shared_ptr<Graph>>& methods, const Module& module) {
  c10::IValue::HashAliasedIValues given;
  c10::IValue(module._ivalue()).getSubValues(given);
  std::unordered_set<const void*> shared;
  for (const c10::IValue& value : given) {
    if (value.isTensor() && value.toTensor().defined() && value.toTensor().has_storage()) {
      shared.insert(storage_of(value.toTensor()));
    }
  }
  std::unordered_set<const void*> written;
  for (const auto& graph : methods) {
    if (!may_write(graph->block())) {
      continue;
    }
    mark_loops(*graph);
    const AliasDb aliases(graph);
    for (Node* node : all_nodes(*graph)) {
      if (holds_tensor(node) && aliases.hasWriters(node)) {
        written.insert(storage_of(node->t(attr::value)));
      }
    }
    unmark_loops(*graph);
  }
  std::unordered_map<const void*, at::Tensor> copies;
  for (const auto& graph : methods) {
    for (Node* node : all_nodes(*graph)) {
      if (!holds_tensor(node) || !shared.count(storage_of(node->t(attr::value)))) {
        continue;
      }
      const at::Tensor tensor = node->t(attr::value).detach();
      at::Tensor& copy = copies[node->t(attr::value).unsafeGetTensorImpl()];
      if (!copy.defined()) {
        copy = written.count(storage_of(tensor)) ? tensor : tensor.clone();
      }
      node->t_(attr::value, copy);
    }
  }
}

// What all examples tell of the inputs of a method, without self.
std::vector<Known> inputs_of(const Graph& graph, const std::vector<Stack>& examples) {
  std::vector<Known> inputs;
  for (size_t i = 0; !examples.empty() && i < graph.inputs().size(); ++i) {
    if (i == 0) {  // self
      inputs.emplace_back();
      continue;
    }
    const auto& type = graph.inputs()[i]->type();
    Known known = read_input(examples[0][i - 1], type);
    for (const Stack& example : examples) {
      known = join_inputs(known, read_input(example[i - 1], type));
    }
    inputs.push_back(std::move(known));
  }
  return inputs;
}

// An artefact's graph, of operators of jit_amp's own: what follows from its inputs, until nothing
// more does.
Facts settled(std::shared_ptr<Graph>& graph, const std::vector<Known>& inputs) {
  share_parts(graph);
  Facts facts = find_facts(graph, inputs);
  while (answer_questions(graph, facts)) {
    share_parts(graph);
    facts = find_facts(graph, inputs);
  }
  return facts;
}

}  // namespace

Module freeze(const Module& module, const std::vector<std::string>& preserved_attrs,
              const std::vector<Stack>& examples, bool optimize_numerics,
              std::shared_ptr<Graph>* known) {
  const Suspended ambient;  // constants are folded here: as outside any autocast
  const Turn turn;
  Module copy = own_copy(module);
  const std::vector<Kept> methods = kept_methods(copy, preserved_attrs);
  std::unordered_map<GraphFunction*, std::shared_ptr<Graph>> lowered;
  for (const Kept& kept : methods) {
    GraphFunction* function = function_of(copy, kept);
    if (!function) {
      continue;
    }
    const auto self = submodule(copy, kept.path)._ivalue();
    auto graph = flatten(*function, self, /*is_final=*/true);
    check_can_freeze(*graph);
    check_not_preserved(read_attributes(graph, self), preserved_attrs);
    const State off;
    lower(graph, find_scopes(*graph, off), off, Product::exported);
    unmark_loops(*graph);
    const auto [known, is_new] = lowered.emplace(function, graph);
    if (!is_new && known->second->toString(false) != graph->toString(false)) {
      throw AutocastError(c10::str(
          "jit_amp: `", kept.path, ".", kept.name,
          "` is to be preserved, and is other code than that "
          "of another preserved module of its class: other scopes, or another module behind an "
          "interface\n\nInstead: one artefact for each, or a class for each"));
    }
  }
  for (const auto& [function, graph] : lowered) {  // once none calls another any more
    replace_contents(*function->graph(), *graph);
  }
  Module frozen = freeze_module(copy, preserved_attrs);
  std::unordered_set<GraphFunction*> done;
  std::vector<std::shared_ptr<Graph>> graphs;
  for (const Kept& kept : methods) {
    GraphFunction* function = function_of(frozen, kept);
    if (!function || !done.insert(function).second) {
      continue;
    }
    auto graph = function->graph();
    if (optimize_numerics) {
      fold_into_weights(graph);
    }
    decompose(graph);
    mark_loops(*graph);
    const bool is_forward = kept.path.empty() && kept.name == "forward";
    RemoveListMutation(graph);
    const bool by_example = is_forward && !examples.empty();
    auto inputs = by_example ? inputs_of(*graph, examples) : expected_inputs(graph);
    if (methods.size() == 1) {  // no other writes to what it reads
      inputs.resize(std::max<size_t>(inputs.size(), 1));
      inputs[0] = known_of(frozen._ivalue());
    }
    const Facts facts = settled(graph, inputs);
    if (known && is_forward) {
      *known = annotated(graph, facts);
    }
    seal(graph, facts, inputs, by_example);
    OptimizeFrozenGraph(graph, /*optimize_numerics=*/false);
    mark_loops(*graph);
    share_parts(graph);
    unmark_loops(*graph);
    ship(*graph);
    graphs.push_back(graph);
  }
  own_constants(graphs, module);
  return frozen;
}

}  // namespace jit_amp
