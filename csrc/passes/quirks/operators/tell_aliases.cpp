#include "passes/quirks/operators/tell_aliases.h"

#include <torch/csrc/jit/ir/alias_analysis.h>

#include <utility>
#include <vector>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The tensors that the result may be.
std::vector<Value*> candidates(Node* node) {
  std::vector<Value*> found;
  for (Value* operand : node->inputs()) {
    if (is_tensor(operand->type())) {
      found.push_back(operand);
      break;  // the others tell how
    }
    if (operand->node()->kind() == prim::ListConstruct && is_tensor_list(operand->type())) {
      found.insert(found.end(), operand->node()->inputs().begin(), operand->node()->inputs().end());
    }
  }
  return found;
}

// The tensors that a node gives; of a list, what is taken from it.
std::vector<Value*> results_of(Node* node) {
  std::vector<Value*> found;
  for (Value* output : node->outputs()) {
    if (is_tensor(output->type())) {
      found.push_back(output);
    } else if (is_tensor_list(output->type())) {
      for (const Use& use : output->uses()) {
        if (use.user->kind() == aten::__getitem__ || use.user->kind() == prim::ListUnpack) {
          found.insert(found.end(), use.user->outputs().begin(), use.user->outputs().end());
        }
      }
    }
  }
  return found;
}

// `operand if result is operand else result`, after the node.
Node* choice(Value* result, Value* operand, Node* after) {
  Graph* graph = after->owningGraph();
  const WithInsertPoint here(after->next());
  Value* is_same = graph->insert(aten::__is__, {result, operand});
  is_same->node()->copyMetadata(after);
  Value* either = insert_if(is_same, [&] { return operand; }, [&] { return result; });
  return either->setType(c10::TensorType::get())->node();
}

void undo(Node* either) {
  Node* question = either->input()->node();
  either->output()->replaceAllUsesWith(either->blocks()[1]->outputs()[0]);
  either->destroy();
  question->destroy();
}

}  // namespace

bool tell_aliases(const std::shared_ptr<Graph>& graph) {
  if (!may_write(graph->block())) {
    return false;
  }
  std::vector<Node*> choices;
  for (Node* node : all_nodes(*graph)) {
    if (!may_return_operand(node)) {
      continue;
    }
    for (Value* result : results_of(node)) {
      Node* last = result->node();
      for (Value* operand : candidates(node)) {
        if (operand->owningGraph() != result->owningGraph()) {
          continue;
        }
        const std::vector<Use> uses = result->uses();
        last = choice(result, operand, last);
        for (const Use& use : uses) {
          use.user->replaceInput(use.offset, last->output());
        }
        choices.push_back(last);
        result = last->output();
      }
    }
  }
  if (choices.empty()) {
    return false;
  }
  std::vector<Node*> idle;
  {
    const AliasDb aliases(graph);
    for (Node* either : choices) {
      // In a task, of which AliasDb knows nothing, anything may be written to.
      if (either->owningGraph() == graph.get() && !aliases.hasWriters(either->output())) {
        idle.push_back(either);
      }
    }
  }
  for (auto either = idle.rbegin(); either != idle.rend(); ++either) {
    undo(*either);
  }
  return idle.size() < choices.size();
}

}  // namespace jit_amp
