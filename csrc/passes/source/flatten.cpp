#include "passes/source/flatten.h"

#include <torch/csrc/jit/passes/inliner.h>

#include <map>
#include <set>
#include <unordered_set>
#include <vector>

#include "analysis/has_scopes.h"
#include "analysis/hidden_calls.h"
#include "analysis/modules.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "passes/source/widen.h"
#include "passes/source/wrap.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether the node's operands, from `first` on, are of the types that `graph` takes. What is known
// of a tensor's shape, as in traced graphs, is not part of that.
bool fit(const Node* node, size_t first, const Graph& graph) {
  const auto formals = graph.inputs();
  if (node->inputs().size() != formals.size() + first) {
    return false;
  }
  for (size_t i = 0; i < formals.size(); ++i) {
    if (!unshapedType(node->input(first + i)->type())
             ->isSubtypeOf(*unshapedType(formals[i]->type()))) {
      return false;
    }
  }
  return true;
}

AutocastError malformed(const Node* node) {
  return diagnostic(Diagnostic::malformed, node, {node->kind().toQualString()});
}

// Refuses what PyTorch's own passes would break on, and `lint` does not see.
void check_form(const Node* node) {
  const auto blocks = node->blocks();
  const size_t outputs = node->outputs().size();
  bool well_formed = true;
  if (node->kind() == prim::If) {
    well_formed = node->inputs().size() == 1 && blocks.size() == 2;
    for (const Block* branch : blocks) {
      well_formed &= branch->inputs().empty() && branch->outputs().size() == outputs;
    }
  } else if (node->kind() == prim::Loop) {
    well_formed = blocks.size() == 1 && node->inputs().size() == outputs + 2 &&
                  blocks[0]->inputs().size() == outputs + 1 &&
                  blocks[0]->outputs().size() == outputs + 1;
  } else if (node->kind() == prim::fork) {
    well_formed = fit(node, 0, *node->g(attr::Subgraph));
  } else if (node->kind() == prim::CallMethod || node->kind() == prim::Enter ||
             node->kind() == prim::Exit || node->kind() == prim::CallFunction) {
    well_formed = !node->inputs().empty();
  }
  if (!well_formed) {
    throw malformed(node);
  }
}

// Refuses calls of code that is scripted, that is not inlined, and that is not lowered either.
void check_reaches(const Node* node) {
  if (node->kind() == prim::awaitable) {
    throw diagnostic(Diagnostic::awaitable, node);
  }
  if (node->kind() == prim::CallMethod && !node->input(0)->type()->cast<c10::ClassType>()) {
    const auto interface = node->input(0)->type()->cast<c10::InterfaceType>();
    if (!interface || !interface->is_module()) {
      throw diagnostic(Diagnostic::unknown_class, node);
    }
  }
}

// `with` of an object becomes calls of its methods, where autocast makes a difference to them.
Node* as_call(Node* node) {
  GraphFunction* callee = hidden_callee(node);
  if (!callee || !concerns_autocast(*callee)) {
    return node;
  }
  if (node->kind() != prim::Enter && node->kind() != prim::Exit) {
    HasScopes has_scopes;
    if (has_scopes(*callee)) {
      throw diagnostic(Diagnostic::hidden_scope, node, {callee->qualname().qualifiedName()});
    }
    return node;
  }
  Graph* graph = node->owningGraph();
  const WithInsertPoint here(node);
  std::vector<Value*> inputs{node->input(0)};
  while (inputs.size() <
         callee->getSchema().arguments().size()) {  // the exception, if there is one
    inputs.push_back(graph->insertConstant(c10::IValue()));
  }
  Node* call = graph->insertNode(graph->create(prim::CallMethod, inputs, 1));
  call->s_(attr::name, callee->name());
  call->copyMetadata(node);
  call->output()->setType(callee->getSchema().returns().at(0).type());
  node->output()->replaceAllUsesWith(call->output());
  node->destroy();
  return call;
}

// Every scope of the graph becomes `enabled=False`.
void switch_off_scopes(Graph& graph) {
  for (Node* node : all_nodes(graph, prim::CallMethod)) {
    if (!is_autocast_class(node->input(0)->type()) || node->s(attr::name) != "__init__") {
      continue;
    }
    const auto& formals =
        node->input(0)->type()->expect<c10::ClassType>()->getMethod("__init__").getSchema();
    const auto enabled = formals.argumentIndexWithName("enabled");
    if (enabled && static_cast<size_t>(*enabled) < node->inputs().size()) {
      const WithInsertPoint here(node);
      node->replaceInput(*enabled, graph.insertConstant(false));
    }
  }
}

// Inlines calls depth first; each callee is flattened once for the modules that it is called with,
// however often it is called.
class Flattener {
 public:
  // `is_final`: the module behind an interface is the one that is there now.
  Flattener(const ObjectPtr& self, bool is_final) : is_final_(is_final) {
    if (is_final && self) {
      assigned_ = assigned_attributes(self);
    }
  }

  // `given`: the module that each input is, null for what is no module or not known.
  std::shared_ptr<Graph> body(GraphFunction& function, const std::vector<ObjectPtr>& given,
                              const Node* call) {
    Key key(&function, {});
    for (const ObjectPtr& module : given) {
      key.second.push_back(module.get());
    }
    if (auto done = done_.find(key); done != done_.end()) {
      return done->second;
    }
    if (!open_.insert(key).second) {
      throw diagnostic(Diagnostic::recursion, call);
    }
    function.ensure_defined();
    auto graph = function.graph()->copy();
    const auto how = ignored(function, given.empty() ? nullptr : given[0]);
    Modules modules(given);
    if (how && !how->kept.empty()) {
      inline_with_kept(*graph, modules, *how);
    } else {
      if (!kept_.empty()) {
        widen_kept(graph->block(), *pattern_, kept_);
      }
      inline_calls(graph->block(), modules);
    }
    if (how && how->kept.empty()) {
      if (how->scopes) {
        switch_off_scopes(*graph);
      }
      wrap(*graph, *how->pattern, {{"cpu", std::nullopt, false}, {"cuda", std::nullopt, false}});
      if (how->widens) {
        widen_inputs(*graph);
      }
    }
    open_.erase(key);
    done_.emplace(key, graph);
    return graph;
  }

 private:
  using Key = std::pair<GraphFunction*, std::vector<const c10::ivalue::Object*>>;

  // Lines and operators that stay in float32 do so in what is called from here, and nowhere else.
  void inline_with_kept(Graph& graph, Modules& modules, const Ignoring& how) {
    std::map<Key, std::shared_ptr<Graph>> done;
    done.swap(done_);
    KeptParts kept = how.kept;
    std::swap(kept, kept_);
    auto pattern = how.pattern;
    pattern.swap(pattern_);
    widen_kept(graph.block(), *pattern_, kept_);
    inline_calls(graph.block(), modules);
    done.swap(done_);
    std::swap(kept, kept_);
    pattern.swap(pattern_);
  }

  void inline_calls(Block* block, Modules& modules) {
    std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
    for (Node* node : nodes) {
      check_form(node);
      node = as_call(node);
      for (Block* inner : node->blocks()) {
        inline_calls(inner, modules);
      }
      if (node->hasAttribute(attr::Subgraph)) {
        modules.enter(node);
        inline_calls(node->g(attr::Subgraph)->block(), modules);
      }
      check_reaches(node);
      if (is_final_ && node->kind() == prim::CallMethod) {
        see_behind_interface(node->input(0), modules);
      }
      if (node->kind() != prim::CallFunction && node->kind() != prim::CallMethod) {
        continue;
      }
      if (node->kind() == prim::CallMethod && is_autocast_class(node->input(0)->type())) {
        continue;
      }
      if (GraphFunction* callee = tryToGraphFunction(node)) {
        const bool is_method = node->kind() == prim::CallMethod;
        std::vector<ObjectPtr> given;
        for (size_t i = is_method ? 0 : 1; i < node->inputs().size(); ++i) {
          given.push_back(modules.find(node->input(i)).first);
        }
        if (is_method && !given[0] &&
            any_ignored(*node->input(0)->type()->expect<c10::ClassType>(), callee->name())) {
          throw diagnostic(Diagnostic::ignored_at_run_time, node);
        }
        auto graph = body(*callee, given, node);
        if (!fit(node, is_method ? 0 : 1, *graph)) {
          throw malformed(node);
        }
        if (!is_method) {
          Node* constant = node->input(0)->node();
          node->removeInput(0);
          if (constant->kind() == prim::Constant && !constant->hasUses()) {
            constant->destroy();
          }
        }
        inlineCallTo(node, callee, graph.get());
      }
    }
  }

  void see_behind_interface(Value* value, const Modules& modules) {
    const Node* node = value->node();
    if (value->type()->cast<c10::InterfaceType>() && node->kind() == prim::GetAttr &&
        !assigned_.count({node->input()->type().get(), node->s(attr::name)})) {
      if (const auto owner = modules.find(node->input()).first) {
        value->setType(owner->getAttr(node->s(attr::name)).toObject()->type());
      }
    }
  }

  bool is_final_;
  Assigned assigned_;
  KeptParts kept_;  // what stays in float32, and wrap's pattern for it
  std::shared_ptr<Graph> pattern_;
  std::map<Key, std::shared_ptr<Graph>> done_;
  std::set<Key> open_;
};

}  // namespace

std::shared_ptr<torch::jit::Graph> flatten(torch::jit::GraphFunction& function,
                                           const torch::jit::ObjectPtr& self, bool is_final) {
  return Flattener(self, is_final).body(function, {self}, nullptr);
}

}  // namespace jit_amp
