#include "passes/facts.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/profiling_record.h>

namespace jit_amp {
namespace {

using namespace torch::jit;

// PyTorch profiles the inputs of some operators; while we observe, those of every node.
thread_local bool observing = false;

void profile_everything() {
  static const bool registered = [] {
    RegisterProfilingNode([](const Node*) { return observing; });
    return true;
  }();
  (void)registered;
}

struct Observing {
  Observing() { observing = true; }
  ~Observing() { observing = false; }
};

bool is_profiling(const Node* node) {
  return node->kind() == prim::profile || node->kind() == prim::profile_ivalue;
}

// Walks a block and its instrumented copy side by side. In the copy each use of a tensor goes
// through a profiling node, which holds what was seen.
void read_profile(Block* block, Block* copy, Facts& facts) {
  auto twin = copy->nodes().begin();
  const auto read = [&](Node* node, Node* profiled) {
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      const Node* source = profiled->input(i)->node();
      if (source->kind() != prim::profile || !source->hasAttribute(attr::profiled_type)) {
        continue;
      }
      auto type = source->ty(attr::profiled_type)->cast<c10::TensorType>();
      if (!type || (!type->scalarType() && !type->device())) {
        continue;  // not reached
      }
      facts.join(node->input(i),
                 {type->scalarType(),
                  type->device() ? std::optional(type->device()->type()) : std::nullopt});
    }
  };
  for (Node* node : block->nodes()) {
    while (is_profiling(*twin)) {
      ++twin;
    }
    TORCH_CHECK((*twin)->kind() == node->kind(), "jit_amp: the profiled graph differs");
    read(node, *twin);
    for (size_t i = 0; i < node->blocks().size(); ++i) {
      read_profile(node->blocks()[i], (*twin)->blocks()[i], facts);
    }
    ++twin;
  }
  read(block->return_node(), copy->return_node());
}

void annotate(const Block* block, Block* copy, const Facts& facts) {
  const auto note = [&](at::ArrayRef<const Value*> values, at::ArrayRef<Value*> copies) {
    for (size_t i = 0; i < values.size(); ++i) {
      const Fact fact = facts.of(values[i]);
      if (fact.dtype && fact.device && copies[i]->type()->kind() == c10::TypeKind::TensorType) {
        copies[i]->setType(c10::TensorType::get()
                               ->withScalarType(fact.dtype)
                               ->withDevice(c10::Device(
                                   *fact.device, *fact.device == c10::DeviceType::CPU ? -1 : 0)));
      }
    }
  };
  note(block->inputs(), copy->inputs());
  auto twin = copy->nodes().begin();
  for (const Node* node : block->nodes()) {
    note(node->outputs(), twin->outputs());
    for (size_t i = 0; i < node->blocks().size(); ++i) {
      annotate(node->blocks()[i], twin->blocks()[i], facts);
    }
    ++twin;
  }
}

}  // namespace

Facts::Key Facts::key(const torch::jit::Value* value) {
  return {value->owningGraph(), value->unique()};
}

Fact Facts::of(const torch::jit::Value* value) const {
  auto found = known_.find(key(value));
  return found == known_.end() ? Fact{} : found->second;
}

void Facts::join(const torch::jit::Value* value, const Fact& seen) {
  auto [at, is_new] = known_.emplace(key(value), seen);
  if (!is_new) {
    if (at->second.dtype != seen.dtype) {
      at->second.dtype.reset();
    }
    if (at->second.device != seen.device) {
      at->second.device.reset();
    }
  }
}

Facts observe(const std::shared_ptr<torch::jit::Graph>& graph,
              const std::vector<torch::jit::Stack>& examples) {
  Facts facts;
  if (examples.empty()) {
    return facts;
  }
  const at::NoGradGuard no_grad;
  profile_everything();
  auto record = [&] {
    const Observing on;
    return ProfilingRecord::instrumentGraph(graph);
  }();
  record->profiling_count_ = examples.size();
  const Code code(record->graph(), "jit_amp_observe");
  for (const Stack& example : examples) {
    Stack stack;
    for (const auto& value : example) {
      stack.push_back(value.isModule() ? value : value.deepcopy());
    }
    InterpreterState(code).run(stack);
  }
  read_profile(graph->block(), record->graph()->block(), facts);
  return facts;
}

std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts) {
  auto copy = graph->copy();
  annotate(std::as_const(*graph).block(), copy->block(), facts);
  return copy;
}

}  // namespace jit_amp
