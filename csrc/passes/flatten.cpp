#include "passes/flatten.h"

#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/graph_rewrite_helper.h>
#include <torch/csrc/jit/passes/inliner.h>

#include <map>
#include <regex>
#include <set>
#include <unordered_set>
#include <vector>

#include "error.h"
#include "passes/enclose.h"
#include "passes/instance.h"
#include "passes/loops.h"
#include "passes/subgraphs.h"
#include "runtime/ignore.h"

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
  return refusal(node,
                 c10::str("a malformed graph: a ", node->kind().toQualString(),
                          " whose operands or blocks do not fit"),
                 "a graph that torch.jit.script or torch.jit.load made");
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
    throw refusal(node, "torch.jit._awaitable", "torch.jit.fork, or a call");
  }
  if (node->kind() == prim::CallMethod && !node->input(0)->type()->cast<c10::ClassType>()) {
    const auto interface = node->input(0)->type()->cast<c10::InterfaceType>();
    if (!interface || !interface->is_module()) {
      throw refusal(node, "a method of an object whose class is known only at run time",
                    "an interface of modules, or `if` with a call of each class's method");
    }
  }
}

// Inlines calls depth first; each callee is flattened once per module however often it is called.
class Flattener {
 public:
  // `is_final`: the module behind an interface is the one that is there now.
  Flattener(const ObjectPtr& self, bool is_final) : is_final_(is_final) {
    if (is_final) {
      assigned_ = assigned_attributes(self);
    }
  }

  std::shared_ptr<Graph> body(GraphFunction& function, const ObjectPtr& self, const Node* call) {
    const Key key(&function, self.get());
    if (auto done = done_.find(key); done != done_.end()) {
      return done->second;
    }
    if (!open_.insert(key).second) {
      throw refusal(call, "a function that calls itself", "a loop; TorchScript has no recursion");
    }
    function.ensure_defined();
    auto graph = function.graph()->copy();
    Modules modules(self);
    inline_calls(graph->block(), modules);
    if (const auto pattern = ignored(function, self)) {
      enclose(*graph, *pattern, {{"cpu", std::nullopt, false}, {"cuda", std::nullopt, false}});
    }
    open_.erase(key);
    done_.emplace(key, graph);
    return graph;
  }

 private:
  using Key = std::pair<GraphFunction*, c10::ivalue::Object*>;

  void inline_calls(Block* block, Modules& modules) {
    std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
    for (Node* node : nodes) {
      check_form(node);
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
        const auto module = is_method ? modules.find(node->input(0)).first : nullptr;
        if (is_method && !module &&
            any_ignored(*node->input(0)->type()->expect<c10::ClassType>(), callee->name())) {
          throw refusal(node,
                        "a module that is chosen at run time, where one of its class ignores "
                        "autocast",
                        "`if` with a call of each module in a branch of its own");
        }
        auto graph = body(*callee, module, node);
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
  std::map<Key, std::shared_ptr<Graph>> done_;
  std::set<Key> open_;
};

// `x is None` and `x is not None`, where the type of x says. PyTorch's peephole pass knows too, and
// costs more than all else here.
void answer_none_checks(Block* block) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      answer_none_checks(inner);
    }
    const bool is = node->kind() == aten::__is__;
    if ((!is && node->kind() != aten::__isnot__) || node->inputs().size() != 2) {
      continue;
    }
    const Value* none = node->input(node->input(0)->mustBeNone() ? 0 : 1);
    const Value* other = node->input(none == node->input(0) ? 1 : 0);
    if (none->mustBeNone() && (other->mustBeNone() || other->mustNotBeNone())) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(
          node->owningGraph()->insertConstant(is == other->mustBeNone()));
    }
  }
}

// A forked task's operands that are constants become constants in it.
void hand_in_constants(Block* block) {
  for (Node* node : block->nodes()) {
    for (Block* inner : node->blocks()) {
      hand_in_constants(inner);
    }
    if (node->kind() != prim::fork) {
      continue;
    }
    const auto task = node->g(attr::Subgraph);
    for (size_t i = node->inputs().size(); i-- > 0;) {
      if (const auto constant = toIValue(node->input(i))) {
        const WithInsertPoint first(*task->nodes().begin());
        task->inputs()[i]->replaceAllUsesWith(task->insertConstant(*constant));
        task->eraseInput(i);
        node->removeInput(i);
      }
    }
    fold_constants(task);
  }
}

// A traced convolution has its lists made in the graph, where the rewriting wants constants.
void make_lists_constant(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::_convolution) {
      continue;
    }
    const WithInsertPoint here(node);
    Graph* owner = node->owningGraph();  // a fork's, perhaps
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Node* made = node->input(i)->node();
      c10::List<int64_t> list;
      if (made->kind() != prim::ListConstruct) {
        continue;
      }
      for (const Value* element : made->inputs()) {
        if (const auto constant = constant_as<int64_t>(element)) {
          list.push_back(*constant);
        }
      }
      if (list.size() == made->inputs().size()) {
        node->replaceInput(i, owner->insertConstant(list));
      }
    }
  }
}

}  // namespace

bool is_autocast_class(const c10::TypePtr& type) {
  auto cls = type->cast<c10::ClassType>();
  if (!cls || !cls->name()) {
    return false;
  }
  static const std::regex mangling("\\.___torch_mangle_[0-9]+");
  static const std::unordered_set<std::string> names{
      "__torch__.torch.amp.autocast_mode.autocast", "__torch__.torch.autocast_mode.autocast",
      "__torch__.torch.cuda.amp.autocast_mode.autocast",
      "__torch__.torch.cpu.amp.autocast_mode.autocast"};
  return names.count(std::regex_replace(cls->name()->qualifiedName(), mangling, "")) != 0;
}

void fold_constants(const std::shared_ptr<torch::jit::Graph>& graph) {
  answer_none_checks(graph->block());
  auto folded = graph;
  ConstantPropagationImmutableTypes(folded);
  hand_in_constants(graph->block());
}

void name_convolutions(const std::shared_ptr<torch::jit::Graph>& graph) {
  std::vector<std::shared_ptr<Graph>> graphs{graph};
  bool is_traced = false;
  for (Node* node : all_nodes(*graph)) {
    is_traced |= node->kind() == aten::_convolution;
    if (node->kind() == prim::fork) {
      graphs.push_back(node->g(attr::Subgraph));
    }
  }
  if (is_traced) {
    make_lists_constant(*graph);
    for (auto& each : graphs) {
      graph_rewrite_helper::replaceConvolutionWithAtenConv(each);
    }
  }
}

std::shared_ptr<torch::jit::Graph> flatten(torch::jit::GraphFunction& function,
                                           const torch::jit::ObjectPtr& self, bool is_final) {
  auto graph = Flattener(self, is_final).body(function, self, nullptr);
  name_convolutions(graph);
  mark_loops(*graph);
  fold_constants(graph);
  return graph;
}

}  // namespace jit_amp
