#include "passes/specialize.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/remove_mutation.h>

#include <algorithm>

#include "passes/loops.h"
#include "passes/subgraphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

GraphFunction& callee(const Node* call) {
  return toGraphFunction(*call->input(0)->type()->expect<c10::FunctionType>()->function());
}

bool takes_tensors(const Node* call) {
  const auto operands = call->inputs().slice(1);
  return std::any_of(operands.begin(), operands.end(), [](const Value* operand) {
    return operand->type()->isSubtypeOf(*c10::OptionalType::ofTensor()) ||
           operand->type()->isSubtypeOf(*c10::ListType::ofTensors());
  });
}

std::vector<Node*> calls(Graph& graph) {
  std::vector<Node*> found = all_nodes(graph);
  found.erase(std::remove_if(found.begin(), found.end(),
                             [](Node* node) { return node->kind() != prim::CallFunction; }),
              found.end());
  return found;
}

// Puts the operands that are known into the body.
std::vector<Value*> take_operands(Graph& body, Node* node, const std::set<size_t>& fixed) {
  std::vector<Value*> operands = node->inputs().vec();
  const WithInsertPoint begin(*body.nodes().begin());
  for (size_t i = 0; i < node->inputs().size(); ++i) {
    Value* given = node->input(i);
    Value* inside = body.inputs()[i];
    if (given->type()->isSubtypeOf(*inside->type())) {
      inside->setType(given->type());
    }
    const auto take = [&](Value* value) -> Value* {
      if (const auto constant = toIValue(value)) {
        return body.insertConstant(*constant);
      }
      operands.push_back(value);
      return body.addInput()->setType(value->type());
    };
    if (toIValue(given)) {
      inside->replaceAllUsesWith(take(given));
    } else if (fixed.count(given->unique())) {
      std::vector<Value*> elements;
      for (Value* element : given->node()->inputs()) {
        elements.push_back(take(element));
      }
      const auto type = given->type()->expectRef<c10::ListType>().getElementType();
      Node* list = body.insertNode(body.createList(type, elements));
      inside->replaceAllUsesWith(list->output());
    }
  }
  return operands;
}

// Inlines what takes tensors.
void inline_calls(Graph& body, const std::function<Value*(Value*)>& lower, bool all) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Node* call : calls(body)) {
      GraphFunction& function = callee(call);
      if (function.name() == "lowered") {
        const WithInsertPoint here(call);
        call->output()->replaceAllUsesWith(lower(call->input(1)));
        call->destroy();
      } else if (all || takes_tensors(call)) {
        call->removeInput(0);
        inlineCallTo(call, &function, function.graph().get());
        changed = true;
      }
    }
  }
}

// Runs the function if it is called with constants. One that raises is left, to raise when the
// graph runs.
bool run_call(Node* call) {
  Stack stack;
  for (const Value* operand : call->inputs().slice(1)) {
    auto constant = toIValue(operand);
    if (!constant) {
      return false;
    }
    stack.push_back(std::move(*constant));
  }
  try {
    callee(call).run(stack);
  } catch (const std::exception&) {
    return false;
  }
  const WithInsertPoint here(call);
  call->output()->replaceAllUsesWith(call->owningGraph()->insertConstant(stack.back()));
  call->destroy();
  return true;
}

// What is asked of a list that is a constant. PyTorch's constant propagation does not answer where
// anything is put into a list, which for AliasDb may be the same thing.
bool ask_lists(Graph& body) {
  bool changed = false;
  for (Node* node : all_nodes(body)) {
    if (node->kind() != aten::__getitem__ && node->kind() != aten::len) {
      continue;
    }
    if (const auto answers = runNodeIfInputsAreConstant(node)) {
      const WithInsertPoint here(node);
      node->output()->replaceAllUsesWith(body.insertConstant(answers->back()));
      changed = true;
    }
  }
  return changed;
}

bool run_calls(Graph& body) {
  bool changed = false;
  for (Node* call : calls(body)) {
    changed |= run_call(call);
  }
  return changed;
}

void fold(std::shared_ptr<Graph>& body) {
  LowerSimpleTuples(body);
  mark_loops(*body);
  while (ConstantPropagation(body)) {  // once does not find all
  }
  RemoveListMutation(body);
  PeepholeOptimizeListIdioms(body);
  unmark_loops(*body);
}

}  // namespace

std::set<size_t> fixed_lists(const std::shared_ptr<Graph>& graph) {
  std::set<size_t> fixed;
  mark_loops(*graph);
  const AliasDb aliases(graph);
  for (Node* node : all_nodes(*graph)) {
    if (node->kind() == prim::ListConstruct && node->owningGraph() == graph.get() &&
        !aliases.hasWriters(node->output())) {
      fixed.insert(node->output()->unique());
    }
  }
  unmark_loops(*graph);
  return fixed;
}

std::vector<Value*> specialize(std::shared_ptr<Graph>& body, Node* node,
                               const std::set<size_t>& fixed,
                               const std::function<Value*(Value*)>& lower) {
  const auto operands = take_operands(*body, node, fixed);
  inline_calls(*body, lower, /*all=*/false);
  do {
    fold(body);
  } while (ask_lists(*body) || run_calls(*body) || UnrollConstantLoops(body));
  inline_calls(*body, lower, /*all=*/true);
  fold(body);
  return operands;
}

}  // namespace jit_amp
