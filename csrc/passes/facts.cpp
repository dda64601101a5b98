#include "passes/facts.h"

#include <ATen/core/grad_mode.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/jit/runtime/profiling_record.h>

#include <algorithm>
#include <unordered_map>
#include <unordered_set>

#include "passes/subgraphs.h"
#include "runtime/ops.h"

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

// Gives a graph that is to run and may write copies of its tensors: they are those of the module
// that is frozen.
void keep_constants(Graph& graph) {
  for (Node* node : all_nodes(graph)) {
    if (node->kind() == prim::Constant && node->hasAttribute(attr::value) &&
        node->kindOf(attr::value) == AttributeKind::t) {
      node->t_(attr::value, node->t(attr::value).clone());
    }
  }
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

// Finds the values whose facts do not hold whichever way the graph goes.
class Prover {
 public:
  Prover(const std::shared_ptr<Graph>& graph, const Facts& seen)
      : graph_(graph), aliases_(graph), seen_(seen) {
    for (size_t i = 0; i < graph->inputs().size(); ++i) {
      const Value* input = graph->inputs()[i];
      if (!has_no_facts(input) && !seen.inputs[i].is_known()) {
        lose(input);
      }
      given_.emplace(input, seen.inputs[i]);
    }
    do {
      changed_ = false;
      visit(graph->block());
    } while (changed_);
  }

  const std::unordered_set<const Value*>& lost() const { return lost_; }

 private:
  // Whether the value has no tensor in it, or is a module, of whose attributes nothing is known.
  static bool has_no_facts(const Value* value) {
    return is_plain(value->type()) || value->type()->is_module();
  }

  bool is_known(const Value* value) const {
    const Fact fact = seen_.of(value);
    return fact.dtype && fact.device;
  }

  bool holds(const Value* value) const { return !lost_.count(value); }

  void lose(const Value* value) { changed_ |= lost_.insert(value).second; }

  bool same(const Value* one, const Value* other) const {
    if (!holds(one) || !holds(other)) {
      return false;
    }
    const Fact a = seen_.of(one);
    const Fact b = seen_.of(other);
    return one == other || (has_no_facts(one) && has_no_facts(other)) ||
           (is_known(one) && is_known(other) && a.dtype == b.dtype && a.device == b.device);
  }

  void visit(Block* block) {
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::Loop) {
        Block* body = node->blocks()[0];
        for (size_t i = 0; i < node->outputs().size(); ++i) {
          if (!same(node->input(i + 2), body->outputs()[i + 1])) {
            lose(body->inputs()[i + 1]);
            lose(node->output(i));
          }
        }
      }
      for (Block* inner : node->blocks()) {
        visit(inner);
      }
      if (node->kind() == prim::If) {
        for (size_t i = 0; i < node->outputs().size(); ++i) {
          if (!same(node->blocks()[0]->outputs()[i], node->blocks()[1]->outputs()[i])) {
            lose(node->output(i));
          }
        }
      } else if (node->kind() != prim::Loop && !follows(node)) {
        for (const Value* output : node->outputs()) {
          lose(output);
        }
      }
    }
  }

  // Whether the facts of the node's results follow from those of its operands.
  bool follows(Node* node) const {
    if (node->kind() == prim::GetAttr) {
      return node->output()->type()->is_module();
    }
    if (is_call(node) || node->kind() == prim::fork || node->kind() == aten::wait ||
        node->kind() == prim::Uninitialized) {
      return false;
    }
    for (const Value* operand : node->inputs()) {
      if (!holds(operand) || (is_container(operand) && aliases_.hasWriters(operand))) {
        return false;
      }
      const auto given = given_.find(operand);
      if (given != given_.end() && given->second.kind == Input::dict && !given->second.is_alike() &&
          !takes_by_key(node)) {
        return false;
      }
    }
    const bool may_be_default = is_get(node) && node->inputs().size() > 2;
    return !may_be_default && !chooses_element(node) && !chooses_dtype(node);
  }

  static bool is_get(const Node* node) { return node->kind() == c10::Symbol::aten("get"); }

  // Whether the node finds elements of a dictionary by their keys, whatever their order.
  static bool takes_by_key(const Node* node) {
    return node->kind() == aten::__getitem__ || is_get(node) ||
           node->kind() == aten::__contains__ || node->kind() == aten::len;
  }

  // Whether the value has elements that may be tensors, or may tell a dtype.
  static bool is_container(const Value* value) {
    const auto kind = value->type()->kind();
    return (kind == c10::TypeKind::ListType &&
            value->type()->containedType(0)->kind() != c10::TypeKind::StringType) ||
           kind == c10::TypeKind::DictType;
  }

  // Whether elements of a container that are not all alike are chosen by a value that is no
  // constant: an index, a key, the bounds of a slice.
  bool chooses_element(const Node* node) const {
    const auto operands = node->inputs();
    const bool may_choose = std::any_of(operands.begin(), operands.end(), [](const Value* operand) {
      return is_plain(operand->type()) && !toIValue(operand) &&
             operand->node()->kind() != ops::deferred;
    });
    return may_choose && std::any_of(operands.begin(), operands.end(), [&](const Value* operand) {
             return is_container(operand) && !is_alike(operand);
           });
  }

  // Whether all elements of a list have the same facts.
  bool is_alike(const Value* list) const {
    const auto given = given_.find(list);
    if (given != given_.end()) {
      return given->second.is_alike();
    }
    const Node* made = list->node();
    if (made->kind() == prim::ListConstruct) {
      return std::all_of(made->inputs().begin(), made->inputs().end(),
                         [&](const Value* element) { return same(made->input(0), element); });
    }
    return made->kind().is_aten() &&  // parts of one tensor
           std::none_of(made->inputs().begin(), made->inputs().end(), is_container);
  }

  // Whether a dtype or device is an operand that is neither a constant nor that of a tensor, or a
  // flag or a number of no fixed type decides about it.
  bool chooses_dtype(const Node* node) const {
    const c10::FunctionSchema* schema = node->maybeSchema();
    if (!schema) {
      return false;
    }
    for (size_t i = 0; i < node->inputs().size() && i < schema->arguments().size(); ++i) {
      const std::string& name = schema->arguments()[i].name();
      const auto from = node->input(i)->node()->kind();
      const auto& type = node->input(i)->type();
      const auto decides =
          !takes_by_key(node) &&
          (type->kind() == c10::TypeKind::BoolType || type->kind() == c10::TypeKind::StringType ||
           type->kind() == c10::TypeKind::NumberType ||
           (type->kind() == c10::TypeKind::OptionalType &&
            !type->isSubtypeOf(*c10::OptionalType::ofTensor())));
      if (decides && from != prim::Constant && from != ops::widest && from != ops::opt_dtype) {
        return true;
      }
      if ((name == "dtype" || name == "device" || name == "cpu" || name == "cuda" ||
           name == "lower") &&
          from != prim::Constant && from != prim::dtype && from != prim::device &&
          from != ops::deferred && from != ops::widest && from != ops::opt_dtype) {
        return true;
      }
    }
    return false;
  }

  std::shared_ptr<Graph> graph_;
  const AliasDb aliases_;
  const Facts& seen_;
  std::unordered_map<const Value*, Input> given_;  // the graph's inputs
  std::unordered_set<const Value*> lost_;
  bool changed_ = false;
};

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
  for (size_t i = 0; i < graph->inputs().size(); ++i) {
    const auto& type = graph->inputs()[i]->type();
    Input input = read_input(examples[0][i], type);
    for (const Stack& example : examples) {
      input = join(input, read_input(example[i], type));
    }
    facts.inputs.push_back(std::move(input));
  }
  const at::NoGradGuard no_grad;
  profile_everything();
  auto record = [&] {
    const Observing on;
    return ProfilingRecord::instrumentGraph(graph);
  }();
  record->profiling_count_ = examples.size();
  if (may_write(record->graph()->block())) {
    keep_constants(*record->graph());
  }
  const Code code(record->graph(), "jit_amp_observe");
  for (const Stack& example : examples) {
    Stack stack;
    for (const auto& value : example) {
      stack.push_back(value.isModule() ? value : value.deepcopy());
    }
    InterpreterState(code).run(stack);
  }
  read_profile(graph->block(), record->graph()->block(), facts);
  const Prover prover(graph, facts);
  for (const Value* value : prover.lost()) {
    facts.forget(value);
  }
  return facts;
}

std::shared_ptr<torch::jit::Graph> annotated(const std::shared_ptr<torch::jit::Graph>& graph,
                                             const Facts& facts) {
  auto copy = graph->copy();
  annotate(std::as_const(*graph).block(), copy->block(), facts);
  return copy;
}

}  // namespace jit_amp
