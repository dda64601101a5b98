#include "passes/fuse_pointwise.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <optional>
#include <string>
#include <unordered_map>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An activation as these operators take it.
struct Activation {
  std::string name;
  std::vector<at::Scalar> scalars;
  std::string algorithm;
};

std::optional<at::Scalar> number(const Value* value) {
  const auto constant = toIValue(value);
  return constant && constant->isScalar() ? std::optional(constant->toScalar()) : std::nullopt;
}

std::optional<Activation> activation_of(const Node* node) {
  static const auto& simple = *new std::unordered_map<std::string, std::string>{
      {"relu", "relu"},           {"sigmoid", "sigmoid"},         {"tanh", "tanh"},
      {"hardswish", "hardswish"}, {"hardsigmoid", "hardsigmoid"}, {"silu", "swish"}};
  std::string name = node->kind().is_aten() ? node->kind().toUnqualString() : "";
  if (!name.empty() && name.back() == '_') {  // what it would write to has no other user
    name.pop_back();
  }
  if (const auto known = simple.find(name); known != simple.end()) {
    return Activation{known->second, {}, ""};
  }
  if (name == "relu6") {
    return Activation{"hardtanh", {0.0, 6.0}, ""};
  }
  if (name == "leaky_relu" && number(node->input(1))) {
    return Activation{name, {*number(node->input(1))}, ""};
  }
  if (name == "hardtanh" && number(node->input(1)) && number(node->input(2))) {
    return Activation{name, {*number(node->input(1)), *number(node->input(2))}, ""};
  }
  const auto algorithm = name == "gelu" ? toIValue(node->input(1)) : std::nullopt;
  if (algorithm && algorithm->isString()) {
    return Activation{name, {}, algorithm->toStringRef()};
  }
  return std::nullopt;
}

// How the processor is asked whether it computes in the dtype.
std::optional<Symbol> question_about(c10::ScalarType dtype) {
  switch (dtype) {
    case at::kBFloat16:
      return Symbol::fromQualString("mkldnn::_is_mkldnn_bf16_supported");
    case at::kHalf:
      return Symbol::fromQualString("mkldnn::_is_mkldnn_fp16_supported");
    default:
      return std::nullopt;
  }
}

constexpr size_t kWeight = 1;
constexpr size_t kBias = 2;

// The weight of a layer that can be fused. Fused convolutions give channels last where the weight
// is packed: they are those that do so anyway.
const at::Tensor* weight_of(const Node* node) {
  const bool is_linear = node->kind() == aten::linear;
  if (!is_linear &&
      (node->kind() != aten::conv2d || node->input(4)->type()->kind() != c10::TypeKind::ListType)) {
    return nullptr;  // padding="same"
  }
  const at::Tensor* weight = tensor_in(node->input(kWeight)->node());
  const at::Tensor* bias = tensor_in(node->input(kBias)->node());
  const bool fits =
      weight && weight->dim() == (is_linear ? 2 : 4) && weight->device().is_cpu() &&
      (is_linear || weight->suggest_memory_format() == at::MemoryFormat::ChannelsLast) &&
      weight->layout() == at::kStrided && weight->numel() &&
      question_about(weight->scalar_type()) &&
      (bias ? bias->scalar_type() == weight->scalar_type() : node->input(kBias)->mustBeNone());
  return fits ? weight : nullptr;
}

class Fuser {
 public:
  explicit Fuser(Graph& graph) : graph_(graph) {}

  // `after` is the activation; null where there is none.
  void fuse(Node* layer, const at::Tensor& weight, Node* after, const Activation& activation) {
    Value* result = after ? after->output() : layer->output();
    const bool is_linear = layer->kind() == aten::linear;
    Value* x = layer->input(0);
    Value* supported = is_supported(weight.scalar_type());
    const WithInsertPoint here(layer);
    const auto is = [&](Symbol what, int64_t expected) {
      return graph_.insert(aten::eq, {graph_.insert(what, {x}), expected});
    };
    const auto both = [&](Value* a, Value* b) { return graph_.insert(aten::__and__, {a, b}); };
    Value* fits = both(supported, is(prim::dtype, static_cast<int64_t>(weight.scalar_type())));
    if (!is_linear) {
      fits = both(fits, is(aten::dim, weight.dim()));
    }
    Value* has_gradient = graph_.insert(prim::requires_grad, {x});
    fits = both(fits, graph_.insert(aten::__not__, {has_gradient}));
    Node* choice = graph_.insertNode(graph_.create(prim::If, {fits}, 1));
    choice->setSourceRange(layer->sourceRange());
    choice->output()->copyMetadata(result);
    {
      Block* fused = choice->addBlock();
      const WithInsertPoint inside(fused);
      fused->registerOutput(fused_of(layer, activation));
    }
    {
      Block* apart = choice->addBlock();
      const auto same = [](Value* value) { return value; };
      Node* last = apart->appendNode(graph_.createClone(layer, same));
      if (after) {
        Value* between = last->output();
        if (is_linear && activation.name == "swish") {
          Node* alias = apart->appendNode(graph_.create(aten::alias, {between}, 1));
          between = alias->output();
        }
        last = apart->appendNode(graph_.createClone(after, same));
        last->replaceInput(0, between);
      }
      apart->registerOutput(last->output());
    }
    result->replaceAllUsesWith(choice->output());
    if (after) {
      after->destroy();
    }
    layer->destroy();
  }

 private:
  Value* is_supported(c10::ScalarType dtype) {
    Value*& known = supported_[dtype];
    if (!known) {
      const WithInsertPoint start(*graph_.nodes().begin());
      known = graph_.insert(*question_about(dtype), {});
    }
    return known;
  }

  Value* fused_of(Node* layer, const Activation& activation) {
    std::vector<Value*> scalars;
    for (const at::Scalar& scalar : activation.scalars) {
      scalars.push_back(graph_.insertConstant(scalar));
    }
    const auto type = c10::OptionalType::create(c10::NumberType::get());
    Value* list = graph_.insertNode(graph_.createList(type, scalars))->output();
    std::vector<NamedValue> arguments{layer->input(0), layer->input(kWeight), layer->input(kBias)};
    if (layer->kind() == aten::linear) {
      arguments.insert(arguments.end(), {activation.name, list, activation.algorithm});
      return graph_.insert(Symbol::fromQualString("mkldnn::_linear_pointwise"), arguments);
    }
    Value *stride = layer->input(3), *padding = layer->input(4), *dilation = layer->input(5);
    arguments.insert(arguments.end(), {padding, stride, dilation, layer->input(6), activation.name,
                                       list, activation.algorithm});
    return graph_.insert(Symbol::fromQualString("mkldnn::_convolution_pointwise"), arguments);
  }

  Graph& graph_;
  std::unordered_map<c10::ScalarType, Value*> supported_;
};

}  // namespace

bool fuse_pointwise(Graph& graph) {
  Fuser fuser(graph);
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (node->kind() != aten::linear && node->kind() != aten::conv2d) {
      continue;
    }
    const at::Tensor* weight = weight_of(node);
    if (!weight) {
      continue;
    }
    const auto& uses = node->output()->uses();
    const bool is_alone = uses.size() == 1 && uses[0].offset == 0 &&
                          uses[0].user->owningBlock() == node->owningBlock();
    const auto activation = is_alone ? activation_of(uses[0].user) : std::nullopt;
    if (activation) {
      fuser.fuse(node, *weight, uses[0].user, *activation);
    } else {
      fuser.fuse(node, *weight, nullptr, {"none", {}, ""});
    }
    changed = true;
  }
  return changed;
}

}  // namespace jit_amp
