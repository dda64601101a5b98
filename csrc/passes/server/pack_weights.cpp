#include "passes/server/pack_weights.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "analysis/thresholds.h"
#include "core/copies.h"
#include "core/graphs.h"
#include "core/processor.h"
#include "core/sharing.h"

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

// The sizes of the input that each weight is first used with, by its number.
using Seen = std::unordered_map<int64_t, std::vector<int64_t>>;
thread_local Seen* seen = nullptr;

// What stands before a layer in a copy of forward that is run once to learn the shapes.
const Symbol kSeen = Symbol::fromQualString("jit_amp::seen");

const RegisterOperators kRegistered{{Operator(
    "jit_amp::seen(Tensor input, int weight) -> ()",
    [](Stack& stack) {
      const int64_t number = pop(stack).toInt();
      const at::Tensor input = pop(stack).toTensor();
      if (seen && !input.is_nested()) {
        seen->emplace(number, input.sizes().vec());
      }
    },
    c10::AliasAnalysisKind::CONSERVATIVE)}};

// Whether all that a run does beside its result is done to what Copies copies, or to the random
// state. Of operators that are not PyTorch's nobody knows.
bool can_run(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::all_of(nodes.begin(), nodes.end(), [](const Node* node) {
    const auto kind = node->kind();
    if (kind.ns() == Symbol::fromQualString(kLinear).ns() || kind == kSeen) {
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

// Which weight the number in a list is.
using Numbers = std::unordered_map<const at::TensorImpl*, size_t>;

// The weight of a layer that takes packed ones; null for other nodes.
const at::Tensor* packed_weight(const Node* node) {
  return is_pointwise(node) ? tensor_in(node->input(weight_number(node->schema()))->node())
                            : nullptr;
}

// forward without what it prints, and with a note before each layer.
std::shared_ptr<Graph> observed_forward(const Module& module, const Numbers& numbers) {
  auto graph = forward_of(module)->copy();
  for (Node* node : all_nodes(*graph)) {
    if (node->kind() == prim::Print || node->kind() == aten::warn) {
      node->destroy();
    } else if (const at::Tensor* weight = packed_weight(node);
               weight && numbers.count(weight->unsafeGetTensorImpl())) {
      Node* choice = node->owningBlock()->owningNode();  // whether the layer is computed so
      const WithInsertPoint here(choice);
      const auto number = static_cast<int64_t>(numbers.at(weight->unsafeGetTensorImpl()));
      graph->insertNode(graph->create(kSeen, {node->input(0), graph->insertConstant(number)}, 0));
    }
  }
  return graph;
}

Seen seen_with(const Module& module, const Stack& example, const Numbers& numbers) {
  Seen found;
  Copies copies;
  const auto graph = observed_forward(module, numbers);
  Stack stack{copies.of(module._ivalue())};
  for (const c10::IValue& argument : copies.of(example)) {
    stack.push_back(argument);
  }
  copies.put_into(graph);
  if (!copies.are_complete() || !can_run(*graph)) {
    return {};
  }
  const at::NoGradGuard no_grad;
  Seen* const outer = std::exchange(seen, &found);
  struct Leave {
    Seen* outer;
    ~Leave() { seen = outer; }
  } const leave{outer};
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

// Whether a weight is widened there for a product.
bool is_widening(const Use& use) {
  return use.user->kind() == aten::to && use.offset == 0 && use.user->inputs().size() == 5 &&
         constant_as<int64_t>(use.user->input(1)) == static_cast<int64_t>(c10::kFloat);
}

bool is_question(const Node* node) {
  return node->kind() == *question_about(c10::kBFloat16) ||
         node->kind() == *question_about(c10::kHalf);
}

bool has_elements(const std::vector<int64_t>& sizes) {
  return std::all_of(sizes.begin(), sizes.end(), [](int64_t size) { return size > 0; });
}

}  // namespace

bool asks_processor(const Module& frozen) {
  const auto nodes = all_nodes(*forward_of(frozen));
  return std::any_of(nodes.begin(), nodes.end(), is_question);
}

std::vector<Packable> packable_weights(const Module& frozen, const std::optional<Stack>& example) {
  std::vector<Packable> packable;
  Numbers numbers;
  std::vector<Node*> layers;  // that take the weight packed; null for others
  const auto written = written_constants(forward_of(frozen));
  for (Node* node : all_nodes(*forward_of(frozen))) {
    const at::Tensor* weight = tensor_in(node);
    if (!weight || std::find(written.begin(), written.end(), node) != written.end() ||
        !question_about(weight->scalar_type()) || !weight->device().is_cpu()) {
      continue;
    }
    const auto& uses = node->output()->uses();
    // Vectors are converted at each call.
    const auto is_held = [](const Use& use) { return packed_weight(use.user) || is_widening(use); };
    if (weight->dim() < 2 || std::none_of(uses.begin(), uses.end(), is_held) ||
        !numbers.emplace(weight->unsafeGetTensorImpl(), packable.size()).second) {
      continue;
    }
    const auto layer = std::find_if(uses.begin(), uses.end(), [&](const Use& use) {
      const at::Tensor* taken = packed_weight(use.user);
      return taken && taken->is_same(*weight);
    });
    packable.push_back({*weight, {}});
    layers.push_back(layer == uses.end() ? nullptr : layer->user);
  }
  const Seen sizes = example ? seen_with(frozen, *example, numbers) : Seen();
  for (size_t i = 0; i < packable.size(); ++i) {
    const auto with = sizes.find(static_cast<int64_t>(i));
    if (with != sizes.end() && has_elements(with->second)) {
      packable[i].plan = plan_of(layers[i], with->second);
    }
  }
  return packable;
}

namespace {

// Makes forward take one weight from `owner`, the submodule, for what a constant was.
void take_from(Graph& graph, Value* owner, Value* weights, Node* constant, int64_t number,
               const std::vector<int64_t>& plan) {
  const auto held = [&] { return graph.insert(aten::__getitem__, {weights, number}); };
  const auto dense = [&] {
    Node* call = graph.create(prim::CallMethod, {owner, graph.insertConstant(number)}, 1);
    call->s_(attr::name, "dense");
    return graph.insertNode(call)->output()->setType(c10::TensorType::get());
  };
  for (const Use& use : std::vector<Use>(constant->output()->uses())) {
    if (use.user->kind() == prim::dtype) {
      Node* around = use.user->owningBlock()->owningNode();
      // Outside of the condition, so that this is the same for all layers (share_conditions.h).
      const WithInsertPoint here(around ? around : use.user);
      use.user->replaceInput(0, held());
      continue;
    }
    const WithInsertPoint here(use.user);
    if (is_widening(use)) {
      use.user->replaceInput(0, held());
      continue;
    }
    const bool is_weight =
        packed_weight(use.user) && use.offset == weight_number(use.user->schema());
    if (plan.size() == 11 && is_weight) {
      const std::vector<int64_t> sizes(plan.end() - 4, plan.end());
      Value* is_same =
          graph.insert(aten::eq, {graph.insert(aten::size, {use.user->input(0)}), sizes});
      use.user->replaceInput(use.offset, insert_if(is_same, held, dense));
    } else if (is_pointwise(use.user)) {
      use.user->replaceInput(use.offset, held());
    } else if (tensor_in(constant)->numel() >= kLargeWeight) {
      use.user->replaceInput(use.offset, dense());
    }
  }
  if (!constant->output()->hasUses()) {
    constant->destroy();
  }
}

}  // namespace

void use_packed(Module frozen, std::vector<Packable>& packable, const Module& packed) {
  std::string name = "_packed";
  while (frozen.hasattr(name) || frozen.find_method(name)) {
    name += "_";
  }
  frozen.register_module(name, packed);
  const auto graph = forward_of(frozen);
  Node* first = graph->create(prim::GetAttr, {graph->inputs()[0]}, 1);
  graph->prependNode(first->s_(attr::name, name));
  Value* owner = first->output()->setType(packed.type());
  const auto get = [&](const std::string& what) {
    const WithInsertPoint after(first->next());
    return graph->insertGetAttr(owner, what);
  };
  Value* weights = get("weights");
  Numbers numbers;
  for (size_t i = 0; i < packable.size(); ++i) {
    numbers[packable[i].weight.unsafeGetTensorImpl()] = i;
  }
  for (Node* node : all_nodes(*graph)) {
    const at::Tensor* weight = tensor_in(node);
    const auto found = weight ? numbers.find(weight->unsafeGetTensorImpl()) : numbers.end();
    if (found != numbers.end()) {
      take_from(*graph, owner, weights, node, static_cast<int64_t>(found->second),
                packable[found->second].plan);
    }
  }
  for (const auto dtype : {c10::kBFloat16, c10::kHalf}) {
    const std::string end = dtype == c10::kHalf ? "float16" : "bfloat16";
    for (Node* question : all_nodes(*graph, *question_about(dtype))) {
      std::set<Node*> users;
      for (const Use& use : question->output()->uses()) {
        users.insert(use.user);
      }
      for (Node* user : users) {
        if (user->kind() == aten::__not__ || asks_of_kernel(user)) {
          const bool is_of_kernel = user->kind() != aten::__not__;
          user->output()->replaceAllUsesWith(get(is_of_kernel ? "slow_kernel" : "emulated_" + end));
          user->destroy();
        }
      }
      if (question->hasUses()) {
        question->output()->replaceAllUsesWith(get("native_" + end));
      }
      question->destroy();
    }
  }
  packable.clear();
}

void unpack(const Module& module) {
  for (const Module& each : module.modules()) {
    if (each.hasattr("native_bfloat16") &&
        each.find_method("unpack")) {  // jit_amp/_freeze/packed.py
      each.get_method("unpack")({});
    }
  }
}

}  // namespace jit_amp
