#include "passes/source/specialize.h"

#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/loop_unrolling.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/remove_mutation.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>

#include "core/graphs.h"
#include "core/loops.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

GraphFunction& callee(const Node* call) {
  return toGraphFunction(*call->input(0)->type()->expect<c10::FunctionType>()->function());
}

bool takes_tensors(const Node* call) {
  const auto operands = call->inputs().slice(1);
  return std::any_of(operands.begin(), operands.end(),
                     [](const Value* operand) { return is_of_tensors(operand->type()); });
}

// Puts the operands that are known into the body.
std::vector<Value*> take_operands(Graph& body, Node* node, const Lists& fixed) {
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
    } else if (fixed.count({given->owningGraph(), given->unique()})) {
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

// Marks what `call` becomes when it is inlined.
void inline_outside(Node* call, GraphFunction& function) {
  Node* before = call->prev();
  Node* after = call->next();
  inlineCallTo(call, &function, function.graph().get());
  for (Node* node = before->next(); node != after; node = node->next()) {
    node->i_(kOutside, 1);
  }
}

// Inlines what takes tensors.
void inline_calls(Graph& body, const std::function<Value*(Value*)>& lower, bool all) {
  for (bool changed = true; changed;) {
    changed = false;
    for (Node* call : all_nodes(body, prim::CallFunction)) {
      GraphFunction& function = callee(call);
      if (function.name() == "lowered") {
        const WithInsertPoint here(call);
        call->output()->replaceAllUsesWith(lower(call->input(1)));
        call->destroy();
      } else if (all || takes_tensors(call)) {
        call->removeInput(0);
        if (function.name().rfind("outside_", 0) == 0) {
          inline_outside(call, function);
        } else {
          inlineCallTo(call, &function, function.graph().get());
        }
        changed = true;
      }
    }
  }
}

// Puts what the node gives in its place, if all its operands are constants. One that raises is
// left, to raise when the graph runs.
bool evaluate(Node* node) {
  std::optional<c10::IValue> result;
  try {
    if (node->kind() != prim::CallFunction) {
      if (auto results = runNodeIfInputsAreConstant(node)) {
        result = results->back();
      }
    } else {
      Stack stack;
      for (const Value* operand : node->inputs().slice(1)) {
        auto constant = toIValue(operand);
        if (!constant) {
          return false;
        }
        stack.push_back(std::move(*constant));
      }
      const auto graph = callee(node).graph()->copy();
      Inline(*graph);
      // Not the executor: it would optimise as users have told it to, and fail as that does.
      InterpreterState(Code(graph, callee(node).name())).run(stack);
      result = stack.back();
    }
  } catch (const std::exception&) {
    return false;
  }
  if (!result) {
    return false;
  }
  const WithInsertPoint here(node);
  node->output()->replaceAllUsesWith(node->owningGraph()->insertConstant(*result));
  node->destroy();
  return true;
}

// Calls, and what is asked of a list that is a constant. PyTorch's constant propagation does not
// answer that where anything is put into a list, which for AliasDb may be the same thing.
bool evaluate_all(Graph& body) {
  bool changed = false;
  for (Node* node : all_nodes(body)) {
    if (node->kind() == prim::CallFunction || node->kind() == aten::__getitem__ ||
        node->kind() == aten::len) {
      changed |= evaluate(node);
    }
  }
  return changed;
}

// Constant tensors as inputs of the body, but for those who ask them something: what is computed of
// them has no casts yet, and is not to be computed now.
class Hidden {
 public:
  explicit Hidden(Graph& body) : body_(body), first_(body.inputs().size()) {
    for (Node* node : all_nodes(body)) {
      const auto constant =
          node->kind() == prim::Constant ? toIValue(node->output()) : std::nullopt;
      if (!constant || !(constant->isTensor() || constant->isTensorList())) {
        continue;
      }
      Value* hidden = nullptr;
      const auto uses = node->output()->uses();
      for (const Use& use : uses) {
        if (!asks(use.user)) {
          hidden = hidden ? hidden : hide(node);
          use.user->replaceInput(use.offset, hidden);
        }
      }
    }
  }

  ~Hidden() {
    const WithInsertPoint begin(*body_.nodes().begin());
    for (size_t i = constants_.size(); i > 0; --i) {
      Value* hidden = body_.inputs()[first_ + i - 1];
      if (hidden->hasUses()) {
        hidden->replaceAllUsesWith(body_.insertConstant(constants_[i - 1]));
      }
      body_.eraseInput(first_ + i - 1);
    }
  }

  Hidden(const Hidden&) = delete;
  Hidden& operator=(const Hidden&) = delete;

 private:
  // Whether a node gives nothing but numbers, sizes and the like.
  static bool asks(const Node* node) {
    const auto outputs = node->outputs();
    const auto is_no_tensor = [](const Value* output) {
      return is_plain(output->type()) || output->type()->isSubtypeOf(*c10::ListType::ofInts());
    };
    return node->blocks().empty() && !outputs.empty() && node->maybeSchema() &&
           std::all_of(outputs.begin(), outputs.end(), is_no_tensor);
  }

  Value* hide(const Node* constant) {
    constants_.push_back(*toIValue(constant->output()));
    return body_.addInput()->setType(constant->output()->type());
  }

  Graph& body_;
  size_t first_;
  std::vector<c10::IValue> constants_;
};

void fold_body(std::shared_ptr<Graph>& body) {
  const Hidden tensors(*body);
  LowerSimpleTuples(body);
  mark_loops(*body);
  while (ConstantPropagation(body)) {  // once does not find all
  }
  RemoveListMutation(body);
  PeepholeOptimizeListIdioms(body);
  unmark_loops(*body);
}

}  // namespace

Lists fixed_lists(const std::shared_ptr<Graph>& graph) {
  Lists fixed;
  mark_loops(*graph);
  const AliasDb aliases(graph);
  for (Node* node : all_nodes(*graph)) {
    if (node->kind() == prim::ListConstruct && node->owningGraph() == graph.get() &&
        !aliases.hasWriters(node->output())) {
      fixed.emplace(graph.get(), node->output()->unique());
    }
  }
  unmark_loops(*graph);
  return fixed;
}

std::vector<Value*> specialize(std::shared_ptr<Graph>& body, Node* node, const Lists& fixed,
                               const std::function<Value*(Value*)>& lower) {
  const auto operands = take_operands(*body, node, fixed);
  inline_calls(*body, lower, /*all=*/false);
  do {
    fold_body(body);
  } while (evaluate_all(*body) || UnrollConstantLoops(body));
  inline_calls(*body, lower, /*all=*/true);
  fold_body(body);
  return operands;
}

}  // namespace jit_amp
