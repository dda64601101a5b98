#include "passes/lowering/for_interpreter.h"

#include <algorithm>
#include <vector>

#include "core/dialect.h"
#include "core/graphs.h"
#include "core/loops.h"
#include "passes/quirks/optimizer/keep_addmm.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool keep_blocks_apart(Graph& graph) {
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (!node->blocks().empty() && node->outputs().size() == 1) {
      node->owningGraph()->create(ops::block_done, 0)->insertAfter(node);
      changed = true;
    }
  }
  return changed;
}

// A task runs in an executor of PyTorch's choice, which differentiates parts of the graph itself
// (see attach.cpp). So a task becomes one node that runs what was in it. Not one that starts or
// awaits tasks: it would keep a thread waiting.
bool keep_tasks_whole(Graph& graph) {
  bool changed = false;
  for (Node* fork : all_nodes(graph, prim::fork)) {
    const auto task = fork->g(attr::Subgraph);
    const auto inner = all_nodes(*task);
    if (std::any_of(inner.begin(), inner.end(), [](const Node* node) {
          return node->kind() == prim::fork || node->kind() == aten::wait ||
                 node->kind() == prim::CallMethod;
        })) {
      changed |= keep_addmm(*task);
      continue;
    }
    auto whole = std::make_shared<Graph>();
    std::vector<Value*> inputs;
    for (const Value* input : task->inputs()) {
      inputs.push_back(whole->addInput()->setType(input->type()));
    }
    Node* node =
        whole->insertNode(whole->create(ops::scoped_effect, inputs, task->outputs().size()));
    node->g_(attr::Subgraph, task->copy());
    node->ss_(ops::devices, {});
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      node->output(i)->setType(task->outputs()[i]->type());
      whole->registerOutput(node->output(i));
    }
    fork->g_(attr::Subgraph, whole);
    changed = true;
  }
  return changed;
}

}  // namespace

bool for_interpreter(Graph& graph) {
  bool changed = unmark_loops(graph);
  changed |= keep_blocks_apart(graph);
  changed |= keep_tasks_whole(graph);
  return changed;
}

}  // namespace jit_amp
