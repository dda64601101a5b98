#include "passes/server/pack_weights.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "core/copies.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

constexpr const char* kConvolution = "mkldnn::_convolution_pointwise";
constexpr const char* kLinear = "mkldnn::_linear_pointwise";

bool is_pointwise(const Node* node) {
  static const Symbol convolution = Symbol::fromQualString(kConvolution);
  static const Symbol linear = Symbol::fromQualString(kLinear);
  return node->kind() == convolution || node->kind() == linear;
}

// Where these operators take their weight: after the input, and after what is added to the result.
size_t weight_number(const FunctionSchema& schema) {
  return static_cast<size_t>(schema.argumentIndexWithName("W").value());
}

std::shared_ptr<Graph> forward_of(const Module& module) {
  return toGraphFunction(module.get_method("forward").function()).graph();
}

// The sizes of the input that each weight is first used with.
using Seen = std::unordered_map<const at::TensorImpl*, std::vector<int64_t>>;
thread_local Seen* seen = nullptr;

std::unique_ptr<at::ObserverContext> note(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  const auto schema =
      seen && (name == kConvolution || name == kLinear) ? function.operator_schema() : std::nullopt;
  if (schema) {
    // The interpreter's whole stack is given: the arguments are the last of it.
    const size_t count = schema->arguments().size();
    const auto inputs = function.inputs().slice(function.inputs().size() - count);
    seen->emplace(inputs[weight_number(*schema)].toTensor().unsafeGetTensorImpl(),
                  inputs[0].toTensor().sizes().vec());
  }
  return nullptr;
}

// Whether all that a run does beside its result is done to what Copies copies, or to the random
// state. Of operators that are not PyTorch's nobody knows.
bool can_run(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::all_of(nodes.begin(), nodes.end(), [](const Node* node) {
    const auto kind = node->kind();
    if (kind.ns() == Symbol::fromQualString(kLinear).ns()) {
      return true;
    }
    if (kind == prim::Enter || kind == prim::Exit) {
      const auto type = node->input(0)->type()->cast<c10::ClassType>();
      return type && type->name()->qualifiedName().rfind("__torch__.torch.", 0) == 0;
    }
    return (kind.is_aten() || kind.is_prim()) &&
           (!node->hasSideEffects() || kind == prim::RaiseException || kind == prim::SetAttr ||
            kind == aten::manual_seed);
  });
}

// forward without what it prints.
std::shared_ptr<Graph> silent_forward(const Module& module) {
  auto graph = forward_of(module)->copy();
  for (Node* node : all_nodes(*graph)) {
    if (node->kind() == prim::Print || node->kind() == aten::warn) {
      node->destroy();
    }
  }
  return graph;
}

Seen seen_with(const Module& module, const Stack& example) {
  Seen found;
  Copies copies;
  const auto graph = silent_forward(module);
  Stack stack{copies.of(module._ivalue())};
  for (const c10::IValue& argument : copies.of(example)) {
    stack.push_back(argument);
  }
  copies.put_into(graph);
  if (!copies.are_complete() || !can_run(*graph)) {
    return {};
  }
  const at::NoGradGuard no_grad;
  const at::CallbackHandle handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(note).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
  Seen* const outer = std::exchange(seen, &found);
  struct Leave {
    at::CallbackHandle handle;
    Seen* outer;
    ~Leave() {
      seen = outer;
      at::removeCallback(handle);
    }
  } const leave{handle, outer};
  try {
    InterpreterState(Code(graph, "forward")).run(stack);
  } catch (const std::exception&) {
    return {};  // a call with the example raises it again
  }
  return found;
}

std::vector<int64_t> plan_of(const Node* node, const std::vector<int64_t>& sizes) {
  std::vector<int64_t> plan;
  if (node->kind() == Symbol::fromQualString(kLinear)) {
    int64_t rows = 1;
    for (size_t i = 0; i + 1 < sizes.size(); ++i) {
      rows *= sizes[i];
    }
    return {rows};
  }
  const size_t first = weight_number(node->schema()) + 2;  // after the bias
  for (size_t i = first; i < first + 3; ++i) {
    const auto pair = toIValue(node->input(i));
    if (!pair || !pair->isIntList() || pair->toIntVector().size() != 2) {
      return {};
    }
    const auto values = pair->toIntVector();
    plan.insert(plan.end(), values.begin(), values.end());
  }
  const auto groups = toIValue(node->input(first + 3));
  if (!groups || !groups->isInt() || sizes.size() != 4) {
    return {};
  }
  plan.push_back(groups->toInt());
  plan.insert(plan.end(), sizes.begin(), sizes.end());
  return plan;
}

bool has_elements(const std::vector<int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
}

}  // namespace

std::vector<Packable> packable_weights(const Module& frozen, const Stack& example) {
  const Seen sizes = seen_with(frozen, example);
  std::vector<Packable> packable;
  for (Node* node : all_nodes(*forward_of(frozen))) {
    const at::Tensor* weight = is_pointwise(node)
                                   ? tensor_in(node->input(weight_number(node->schema()))->node())
                                   : nullptr;
    const auto with = weight ? sizes.find(weight->unsafeGetTensorImpl()) : sizes.end();
    const bool is_new = with != sizes.end() &&
                        std::none_of(packable.begin(), packable.end(), [&](const auto& each) {
                          return each.weight.is_same(*weight);
                        });
    if (is_new && has_elements(with->second)) {
      if (auto plan = plan_of(node, with->second); !plan.empty()) {
        packable.push_back({*weight, std::move(plan)});
      }
    }
  }
  return packable;
}

void use_packed(Module frozen, const std::vector<Packable>& packable, const Module& packed) {
  std::string name = "_packed";
  while (frozen.hasattr(name) || frozen.find_method(name)) {
    name += "_";
  }
  frozen.register_module(name, packed);
  const auto graph = forward_of(frozen);
  const WithInsertPoint start(*graph->nodes().begin());
  Value* owner = graph->insertGetAttr(graph->inputs()[0], name);
  Value* plain = graph->insertGetAttr(owner, "plain");
  Value* ready = graph->insertGetAttr(owner, "packed");
  std::unordered_map<const at::TensorImpl*, size_t> numbers;
  for (size_t i = 0; i < packable.size(); ++i) {
    numbers[packable[i].weight.unsafeGetTensorImpl()] = i;
  }
  std::vector<Node*> held;
  for (Node* node : all_nodes(*graph)) {
    const at::Tensor* weight = tensor_in(node);
    if (weight && numbers.count(weight->unsafeGetTensorImpl())) {
      held.push_back(node);
    }
  }
  for (Node* constant : held) {
    const size_t number = numbers.at(tensor_in(constant)->unsafeGetTensorImpl());
    const auto& plan = packable[number].plan;
    Value* dense = graph->insert(aten::__getitem__, {plain, static_cast<int64_t>(number)});
    const std::vector<Use> uses = constant->output()->uses();
    for (const Use& use : uses) {
      if (!is_pointwise(use.user)) {
        use.user->replaceInput(use.offset, dense);
        continue;
      }
      const WithInsertPoint here(use.user);
      Value* x = use.user->input(0);
      Value* is_same = nullptr;
      if (plan.size() == 1) {
        const int64_t wide = packable[number].weight.size(1);
        is_same =
            graph->insert(aten::eq, {graph->insert(Symbol::aten("numel"), {x}), plan[0] * wide});
      } else {
        const std::vector<int64_t> sizes(plan.end() - 4, plan.end());
        is_same = graph->insert(aten::eq, {graph->insert(aten::size, {x}), sizes});
      }
      Node* choice = graph->insertNode(graph->create(prim::If, {is_same}, 1));
      choice->output()->setType(c10::TensorType::get());
      {
        Block* block = choice->addBlock();
        const WithInsertPoint inside(block);
        block->registerOutput(
            graph->insert(aten::__getitem__, {ready, static_cast<int64_t>(number)}));
      }
      choice->addBlock()->registerOutput(dense);
      use.user->replaceInput(use.offset, choice->output());
    }
    constant->destroy();
  }
}

void unpack(const Module& module) {
  for (Module each : module.modules()) {
    const std::string type = each.type()->name()->qualifiedName();
    if (type.find(".jit_amp._packed.") != std::string::npos && each.hasattr("packed")) {
      each.setattr("packed", each.attr("plain"));
    }
  }
}

}  // namespace jit_amp
