#include "passes/server/fuse_pointwise.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "analysis/thresholds.h"
#include "analysis/traits.h"
#include "core/graphs.h"
#include "core/processor.h"

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

// By its name in analysis/traits.inc, and what it is given beside a tensor.
std::optional<Activation> activation_of(const Node* node) {
  const Traits& traits = traits_in_place_or_not(node);
  Activation found{traits.fused, {}, ""};
  if (found.name.empty() || found.name == "onednn") {
    return std::nullopt;
  }
  if (node->inputs().size() == 1 && found.name == "hardtanh") {  // relu6
    found.scalars = {0.0, 6.0};
  }
  for (const Value* operand : node->inputs().slice(1)) {
    const auto constant = toIValue(operand);
    if (constant && constant->isScalar()) {
      found.scalars.push_back(constant->toScalar());
    } else if (constant && constant->isString()) {
      found.algorithm = constant->toStringRef();
    } else {
      return std::nullopt;
    }
  }
  return found;
}

constexpr size_t kWeightAt = 1;
constexpr size_t kBiasAt = 2;

// The weight of a layer that can be fused. Fused convolutions give channels last where the weight
// is packed: they are those that do so anyway.
const at::Tensor* weight_of(const Node* node) {
  const bool is_linear = node->kind() == aten::linear;
  if (!is_linear &&
      (node->kind() != aten::conv2d || node->input(4)->type()->kind() != c10::TypeKind::ListType)) {
    return nullptr;  // padding="same"
  }
  const at::Tensor* weight = tensor_in(node->input(kWeightAt)->node());
  const at::Tensor* bias = tensor_in(node->input(kBiasAt)->node());
  const bool is_small = is_linear && weight && weight->numel() < kTooSmallToAsk;
  const bool fits =
      weight && !is_small && weight->dim() == (is_linear ? 2 : 4) && weight->device().is_cpu() &&
      (is_linear || weight->suggest_memory_format() == at::MemoryFormat::ChannelsLast) &&
      weight->layout() == at::kStrided && weight->numel() &&
      question_about(weight->scalar_type()) &&
      (bias ? bias->scalar_type() == weight->scalar_type() : node->input(kBiasAt)->mustBeNone());
  return fits ? weight : nullptr;
}

// A layer, and what is computed in it: an addition, an activation, both or neither.
struct Fusion {
  Node* layer;
  Node* addition = nullptr;
  size_t operand = 0;     // of the addition: what is added
  Node* after = nullptr;  // the activation
  Activation activation = {"none", {}, ""};

  Value* other() const { return addition ? addition->input(operand) : nullptr; }

  Node* last() const { return after ? after : addition ? addition : layer; }
};

// The only node that takes the result, if it is in the same block.
Node* only_user(const Node* node) {
  const auto& uses = node->output()->uses();
  const bool is_one = uses.size() == 1 && uses[0].user->owningBlock() == node->owningBlock();
  return is_one ? uses[0].user : nullptr;
}

bool is_int_list(const Value* value, int64_t expected) {
  const auto constant = toIValue(value);
  return constant && constant->isIntList() &&
         constant->toIntVector() == std::vector<int64_t>(2, expected);
}

// Whether a tensor can be added in the convolution: only where the result is as high and as wide as
// the input is it known whether one fits, and with groups PyTorch adds it afterwards, by code that
// has no reduced dtypes.
bool can_add(const Node* convolution, const at::Tensor& weight) {
  const auto groups = number(convolution->input(6));
  if (!groups || !groups->equal(1)) {
    return false;
  }
  const auto padding = toIValue(convolution->input(4));
  const auto dilation = toIValue(convolution->input(5));
  if (!is_int_list(convolution->input(3), 1) || !padding || !padding->isIntList() || !dilation ||
      !dilation->isIntList()) {
    return false;
  }
  const auto pads = padding->toIntVector(), wide = dilation->toIntVector();
  for (size_t i = 0; i < 2; ++i) {
    if (pads.size() != 2 || wide.size() != 2 ||
        2 * pads[i] != wide[i] * (weight.size(static_cast<int64_t>(i) + 2) - 1)) {
      return false;
    }
  }
  return true;
}

// The operand that the node adds to the layer's result; none where it is no such addition. An
// addition in place may write to the layer's result, which has no other user, but to nothing else.
std::optional<size_t> added_by(const Node* node, const Value* result) {
  const bool in_place = node->kind() == aten::add_;
  if ((node->kind() != aten::add && !in_place) || node->inputs().size() != 3) {
    return std::nullopt;
  }
  const size_t operand = node->input(0) == result ? 1 : 0;
  const Value* other = node->input(operand);
  const auto alpha = number(node->input(2));
  const bool fits = other != result && is_tensor(other->type()) && !(in_place && operand == 0) &&
                    alpha && alpha->equal(1);
  return fits ? std::optional(operand) : std::nullopt;
}

Fusion fusion_of(Node* layer, const at::Tensor& weight) {
  Fusion fusion{layer};
  Node* user = only_user(layer);
  if (user && layer->kind() == aten::conv2d && can_add(layer, weight)) {
    const auto operand = added_by(user, layer->output());
    bool can_move = true;  // down to the addition
    for (Node* node = layer->next(); node != user; node = node->next()) {
      can_move &= !may_write(node);
    }
    if (operand && can_move) {
      fusion.addition = user;
      fusion.operand = *operand;
      user = only_user(user);
    }
  }
  const auto activation =
      user && user->input(0) == fusion.last()->output() ? activation_of(user) : std::nullopt;
  if (activation && (!fusion.addition || activation->name == "relu")) {  // no other is there
    fusion.after = user;
    fusion.activation = *activation;
  }
  return fusion;
}

class PointwiseFuser {
 public:
  explicit PointwiseFuser(Graph& graph) : graph_(graph) {}

  void fuse(const Fusion& fusion, const at::Tensor& weight) {
    Node* layer = fusion.layer;
    Value* result = fusion.last()->output();
    const WithInsertPoint here(fusion.addition ? fusion.addition : layer);
    Value* either = insert_if(
        fits(fusion, weight), [&] { return fused_of(fusion); }, [&] { return apart(fusion); });
    either->node()->setSourceRange(layer->sourceRange());
    either->copyMetadata(result);
    result->replaceAllUsesWith(either);
    for (Node* node : {fusion.after, fusion.addition, layer}) {
      if (node) {
        node->destroy();
      }
    }
  }

 private:
  // Whether the fused operator can be used, as a value of the graph.
  Value* fits(const Fusion& fusion, const at::Tensor& weight) {
    return insert_if(
        is_supported(graph_, weight.scalar_type()), [&] { return is_worth_it(fusion, weight); },
        [&] { return graph_.insertConstant(false); });
  }

  // The same, where PyTorch has the operator for the dtype.
  Value* is_worth_it(const Fusion& fusion, const at::Tensor& weight) {
    if (fusion.layer->kind() != aten::linear || weight.numel() > kTooFewToFuse) {
      return fits_here(fusion, weight);
    }
    Value* elements = graph_.insert(Symbol::aten("numel"), {fusion.layer->input(0)});
    Value* many = graph_.insert(aten::gt, {elements, kTooFewToFuse / weight.size(0)});
    return insert_if(
        many, [&] { return fits_here(fusion, weight); },
        [&] { return graph_.insertConstant(false); });
  }

  // The same, where it is not too small.
  Value* fits_here(const Fusion& fusion, const at::Tensor& weight) {
    Value *x = fusion.layer->input(0), *other = fusion.other();
    const auto equal = [&](Value* a, const NamedValue& b) {
      return graph_.insert(aten::eq, {a, b});
    };
    const auto insert = [&](Symbol what, Value* of) { return graph_.insert(what, {of}); };
    const auto dtype = static_cast<int64_t>(weight.scalar_type());
    std::vector<Value*> all;
    const auto ask_of = [&](Value* tensor) {
      all.push_back(equal(insert(prim::dtype, tensor), dtype));
      all.push_back(insert(aten::__not__, insert(prim::requires_grad, tensor)));
      all.push_back(insert(Symbol::prim("is_cpu"), tensor));
      all.push_back(equal(insert(prim::layout, tensor), static_cast<int64_t>(at::kStrided)));
      all.push_back(insert(aten::__not__, insert(Symbol::prim("is_nested"), tensor)));
    };
    ask_of(x);
    if (fusion.layer->kind() == aten::conv2d) {
      all.push_back(equal(insert(aten::dim, x), weight.dim()));
    }
    if (other) {
      const auto size = [&](int64_t dim) { return graph_.insert(aten::size, {x, dim}); };
      const std::vector<Value*> expected{size(0), graph_.insertConstant(weight.size(0)), size(-2),
                                         size(-1)};
      Node* list = graph_.insertNode(graph_.createList(c10::IntType::get(), expected));
      all.push_back(equal(insert(aten::size, other), list->output()));
      Value* pixels = graph_.insert(aten::mul, {expected[2], expected[3]});
      all.push_back(graph_.insert(aten::ne, {pixels, 1}));
      ask_of(other);
    }
    Value* fits = all[0];
    for (size_t i = 1; i < all.size(); ++i) {
      fits = graph_.insert(aten::__and__, {fits, all[i]});
    }
    return fits;
  }

  // The operators as they were.
  Value* apart(const Fusion& fusion) {
    std::unordered_map<Value*, Value*> copies;
    const auto copy_of = [&](Value* value) {
      const auto known = copies.find(value);
      if (known != copies.end()) {
        return known->second;
      }
      const auto constant = is_plain(value->type()) ? toIValue(value) : std::nullopt;
      return constant ? graph_.insertConstant(*constant) : value;  // it may stand later
    };
    for (Node* node : {fusion.layer, fusion.addition, fusion.after}) {
      if (!node) {
        continue;
      }
      Node* copy = graph_.insertNode(graph_.createClone(node, copy_of));
      if (node == fusion.addition) {
        copy = as_subtraction(copy);
      }
      copies[node->output()] = copy->output();
      copy->output()->setDebugName("");  // one line less for the loader: share_conditions.h
      if (node == fusion.layer && fusion.activation.name == "swish") {
        copies[node->output()] = graph_.insert(aten::alias, {copy->output()});
      }
    }
    return copies.at(fusion.last()->output());
  }

  // The same sum, as `a - (-1) * b`.
  Node* as_subtraction(Node* addition) {
    const WithInsertPoint here(addition);
    addition->replaceInput(2, graph_.insertConstant(-1));
    Node* made =
        addition->replaceWithNewSymbol(addition->kind() == aten::add ? aten::sub : aten::sub_);
    addition->destroy();
    return made;
  }

  Value* fused_of(const Fusion& fusion) {
    Node* layer = fusion.layer;
    const Activation& activation = fusion.activation;
    std::vector<Value*> scalars;
    for (const at::Scalar& scalar : activation.scalars) {
      scalars.push_back(graph_.insertConstant(scalar));
    }
    const auto type = c10::OptionalType::create(c10::NumberType::get());
    Value* list = scalars.empty() ? no_scalars(type)
                                  : graph_.insertNode(graph_.createList(type, scalars))->output();
    std::vector<NamedValue> arguments{layer->input(0), layer->input(kWeightAt),
                                      layer->input(kBiasAt)};
    const auto add = [&](std::initializer_list<NamedValue> more) {
      arguments.insert(arguments.end(), more);
    };
    if (layer->kind() == aten::linear) {
      add({activation.name, list, activation.algorithm});
      return graph_.insert(Symbol::fromQualString("mkldnn::_linear_pointwise"), arguments);
    }
    Value *stride = layer->input(3), *padding = layer->input(4), *dilation = layer->input(5);
    add({padding, stride, dilation, layer->input(6)});
    if (fusion.addition) {
      arguments.insert(arguments.begin() + 1, fusion.other());
      add({"add", 1.0});
      add({fusion.after ? c10::IValue(activation.name) : c10::IValue(), list, c10::IValue()});
    } else {
      add({activation.name, list, activation.algorithm});
    }
    return graph_.insert(Symbol::fromQualString("mkldnn::_convolution_pointwise"), arguments);
  }

  // One empty list for all layers.
  Value* no_scalars(const c10::TypePtr& type) {
    if (!no_scalars_) {
      const WithInsertPoint start(*graph_.nodes().begin());
      no_scalars_ = graph_.insertNode(graph_.createList(type, {}))->output();
    }
    return no_scalars_;
  }

  Graph& graph_;
  Value* no_scalars_ = nullptr;
};

}  // namespace

bool fuse_pointwise(Graph& graph) {
  std::vector<Fusion> fusions;
  std::unordered_set<const Node*> taken;  // an addition can be computed in one of two layers
  for (Node* node : all_nodes(graph)) {
    const bool is_layer = node->kind() == aten::linear || node->kind() == aten::conv2d;
    const at::Tensor* weight = is_layer ? weight_of(node) : nullptr;
    if (!weight) {
      continue;
    }
    const Fusion fusion = fusion_of(node, *weight);
    const bool is_first = !fusion.addition || taken.insert(fusion.addition).second;
    fusions.push_back(is_first ? fusion : Fusion{node});
  }
  PointwiseFuser fuser(graph);
  for (const Fusion& fusion : fusions) {
    fuser.fuse(fusion, *weight_of(fusion.layer));
  }
  return !fusions.empty();
}

}  // namespace jit_amp
