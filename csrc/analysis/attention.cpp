#include "analysis/attention.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <limits>
#include <utility>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

constexpr double kLow = -1e4;  // what people write for minus infinity is lower

std::optional<at::Scalar> constant_number(const Value* value) {
  if (const at::Tensor* tensor = tensor_in(value->node())) {
    return tensor->dim() == 0 ? std::optional(tensor->item()) : std::nullopt;
  }
  const auto constant = toIValue(value);
  return constant && constant->isScalar() ? std::optional(constant->toScalar()) : std::nullopt;
}

std::optional<double> real_number(const Value* value) {
  const auto number = constant_number(value);
  return number && !number->isComplex() ? std::optional(number->toDouble()) : std::nullopt;
}

bool is_int(const Value* value, int64_t expected) {
  const auto constant = toIValue(value);
  return constant && constant->isInt() && constant->toInt() == expected;
}

bool is_reduced(std::optional<c10::ScalarType> dtype) {
  return dtype == c10::kBFloat16 || dtype == c10::kHalf;
}

// The letters of "abc,bcd->abd", where all operands and the result are written out.
std::optional<std::array<std::string, 3>> letters_of(const Value* equation) {
  const auto constant = toIValue(equation);
  if (!constant || !constant->isString()) {
    return std::nullopt;
  }
  std::string text = constant->toStringRef();
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const size_t comma = text.find(','), arrow = text.find("->");
  if (comma == std::string::npos || arrow == std::string::npos || comma > arrow) {
    return std::nullopt;
  }
  std::array<std::string, 3> parts{text.substr(0, comma), text.substr(comma + 1, arrow - comma - 1),
                                   text.substr(arrow + 2)};
  for (const std::string& part : parts) {
    for (size_t i = 0; i < part.size(); ++i) {
      if (!std::isalpha(static_cast<unsigned char>(part[i])) ||
          part.find(part[i], i + 1) != std::string::npos) {
        return std::nullopt;
      }
    }
  }
  return parts;
}

std::string permutation(const std::string& from, const std::string& to) {
  std::string text = ".permute([";
  for (const char letter : to) {
    text += std::to_string(from.find(letter)) + ", ";
  }
  return from == to ? "" : text + "])";
}

std::string without(std::string of, const std::string& one) {
  std::erase_if(of, [&](char letter) { return one.find(letter) != std::string::npos; });
  return of;
}

std::string common(const std::string& of, const std::string& one) {
  return without(of, without(of, one));
}

class Matcher {
 public:
  Matcher(const Facts& facts, c10::DeviceType device) : facts_(facts), device_(device) {}

  // The attention that ends with the node, if it does.
  std::optional<Attention> at(Node* node) const {
    for (size_t side = 0; side < 2; ++side) {
      Attention found;
      if (const auto probabilities = second_product(node, side, found)) {
        if (find_softmax(*probabilities, side, found) && is_computable(found)) {
          return found;
        }
      }
    }
    return std::nullopt;
  }

 private:
  // The operand on that side of the last product.
  std::optional<Value*> second_product(Node* node, size_t side, Attention& found) const {
    found.chain = {node};
    if (node->kind() == aten::matmul || node->kind() == aten::bmm) {
      found.z = node->input(1 - side);
      found.v = side == 0 ? "" : kTurned;
      found.out = side == 0 ? "" : std::string(kTurned) + ".contiguous()";
      found.rank = node->kind() == aten::bmm ? 3 : 0;
      return node->input(side);
    }
    if (node->kind() != aten::einsum || node->input(1)->node()->kind() != prim::ListConstruct ||
        node->input(1)->node()->inputs().size() != 2) {
      return std::nullopt;
    }
    const auto letters = letters_of(node->input(0));
    if (!letters) {
      return std::nullopt;
    }
    const std::string &p = (*letters)[side], &z = (*letters)[1 - side], &out = (*letters)[2];
    const std::string keys = without(common(p, z), out), batch = common(common(out, p), z);
    const std::string queries = without(p, z), width = without(z, p);
    // Which of the last two letters of `p` is summed over is what has to have been normalised.
    if (keys.size() != 1 || queries.size() != 1 || width.size() != 1 || p.size() < 2 ||
        p != batch + queries + keys || out.size() != p.size() || out.back() != width[0]) {
      return std::nullopt;
    }
    found.chain.push_back(node->input(1)->node());
    found.z = node->input(1)->node()->input(1 - side);
    found.v = permutation(z, batch + keys + width);
    found.out = permutation(batch + queries + width, out);
    found.rank = static_cast<int64_t>(p.size());
    return node->input(1)->node()->input(side);
  }

  // Up from the second product's operand to the first product. Whatever has another user ends it.
  bool find_softmax(Value* value, size_t side, Attention& found) const {
    const bool by_letters = found.last()->kind() == aten::einsum;
    bool turned = false;
    for (Node* node = step_up(value, found); node; node = step_up(value, found)) {
      if (is_identity(node)) {
        value = node->input(0);
      } else if (is_transposition(node, found.rank)) {
        value = node->input(0);
        turned = !turned;
      } else if (node->kind() == aten::softmax || node->kind() == aten::_softmax) {
        found.has_half |= dtype(node->output()) == c10::kHalf;
        const auto dim = toIValue(node->input(1));
        if (!dim || !dim->isInt() || !is_floating(node->input(0))) {
          return false;
        }
        found.is_by_columns = dim->toInt() == -2;
        if (dim->toInt() >= 0) {
          if (found.rank && found.rank != dim->toInt() + 1) {
            found.is_by_columns = found.rank == dim->toInt() + 2;
          }
          found.rank = found.is_by_columns ? found.rank : dim->toInt() + 1;
          if (found.rank < dim->toInt() + 1) {
            return false;
          }
        } else if (dim->toInt() < -2) {
          return false;
        }
        // `P @ v`, or `v @ P.T`
        if ((turned != found.is_by_columns) != (side == 1 && !by_letters)) {
          return false;
        }
        return find_first_product(node->input(0), found);
      } else {
        return false;
      }
    }
    return false;
  }

  bool find_first_product(Value* value, Attention& found) const {
    for (Node* node = step_up(value, found); node; node = step_up(value, found)) {
      found.has_half |= dtype(node->output()) == c10::kHalf;
      if (auto product = first_product(node, found.is_by_columns)) {
        if (node->kind() == aten::einsum) {
          found.chain.push_back(node->input(1)->node());
        }
        if (product->rank && found.rank && product->rank != found.rank) {
          return false;
        }
        found.rank = std::max(found.rank, product->rank);
        found.first = *product;
        found.rounds_scores =
            is_reduced(dtype(node->output())) &&
            std::none_of(product->steps.begin(), product->steps.end(),
                         [](const AttentionStep& step) { return step.kind == AttentionStep::add; });
        found.steps.insert(found.steps.end(), product->steps.rbegin(), product->steps.rend());
        std::reverse(found.steps.begin(), found.steps.end());
        return true;
      }
      const size_t scores = number_of_scores(node);
      if (is_identity(node)) {
        value = node->input(0);
      } else if (const auto step = step_of(node, scores)) {
        found.steps.push_back(*step);
        found.is_wide |= step->kind != AttentionStep::exclude &&
                         step->kind != AttentionStep::keep && dtype(node->output()) == c10::kFloat;
        value = node->input(scores);
      } else {
        return false;
      }
    }
    return false;
  }

  // The node that makes the value, if that has no other user.
  static Node* step_up(Value* value, Attention& found) {
    Node* node = value->node();
    if (value->uses().size() != 1 || node->owningBlock() != found.last()->owningBlock() ||
        node->outputs().size() != 1 || !node->kind().is_aten()) {
      return nullptr;
    }
    found.chain.push_back(node);
    return node;
  }

  std::optional<c10::ScalarType> dtype(const Value* value) const {
    return facts_.of(value).dtype();
  }

  bool is_floating(const Value* value) const {
    const auto known = dtype(value);
    return known == c10::kFloat || is_reduced(known);
  }

  // Whether the node gives its first operand, up to rounding.
  bool is_identity(const Node* node) const {
    if (node->kind() == aten::dropout) {
      const auto rate = real_number(node->input(1));
      const auto train = constant_as<bool>(node->input(2));
      return (train && !*train) || (rate && *rate == 0);
    }
    return traits_of(node).group == Group::identity && is_floating(node->output()) &&
           is_floating(node->input(0));
  }

  static bool is_transposition(const Node* node, int64_t rank) {
    if (node->kind() == aten::transpose) {
      for (const auto& [a, b] : {std::pair<int64_t, int64_t>{-1, -2}, {rank - 1, rank - 2}}) {
        for (const auto& [i, k] : {std::pair(1, 2), std::pair(2, 1)}) {
          if (a != b && (a < 0 || rank) && is_int(node->input(i), a) &&
              (is_int(node->input(k), b) || is_int(node->input(k), b - (a < 0 ? 0 : rank)))) {
            return true;
          }
        }
      }
    }
    const auto order = node->kind() == aten::permute ? toIValue(node->input(1)) : std::nullopt;
    if (!order || !order->isIntList() || order->toIntVector().size() < 2) {
      return false;
    }
    auto dims = order->toIntVector();
    std::swap(dims[dims.size() - 1], dims[dims.size() - 2]);
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i] != static_cast<int64_t>(i)) {
        return false;
      }
    }
    return true;
  }

  // A first product as rows of queries and rows of keys.
  std::optional<AttentionProduct> first_product(Node* node, bool by_columns) const {
    if (is_batched_product(node)) {
      const size_t from = node->kind() == aten::baddbmm ? 1 : 0;
      AttentionProduct product{node->input(from), node->input(from + 1)};
      product.right_columns = kTurned;
      product.rank = node->kind() == aten::matmul ? 0 : 3;
      if (by_columns) {
        std::swap(product.left, product.right);
        std::swap(product.left_rows, product.right_columns);
      }
      if (from) {
        const auto beta = real_number(node->input(3)), alpha = real_number(node->input(4));
        if (!beta || (*beta != 0 && !is_term(node->input(0))) ||
            (!alpha && !is_number(node->input(4)))) {
          return std::nullopt;
        }
        product.steps.push_back({AttentionStep::scale, node->input(4)});
        if (*beta != 0) {
          product.steps.push_back({AttentionStep::add, node->input(0), *beta});
        }
      }
      return product;
    }
    if (node->kind() != aten::einsum || node->input(1)->node()->kind() != prim::ListConstruct ||
        node->input(1)->node()->inputs().size() != 2 || by_columns) {
      return std::nullopt;
    }
    const auto letters = letters_of(node->input(0));
    if (!letters || (*letters)[2].size() < 2) {
      return std::nullopt;
    }
    const std::string& out = (*letters)[2];
    const char queries = out[out.size() - 2], keys = out.back();
    const size_t side = (*letters)[0].find(queries) != std::string::npos ? 0 : 1;
    const std::string &q = (*letters)[side], &k = (*letters)[1 - side];
    const std::string batch = out.substr(0, out.size() - 2), width = without(common(q, k), out);
    if (width.size() != 1 || common(common(batch, q), k) != batch ||
        without(q, k) != std::string{queries} || without(k, q) != std::string{keys} ||
        q.size() != out.size() || k.size() != out.size()) {
      return std::nullopt;
    }
    const auto operands = node->input(1)->node()->inputs();
    AttentionProduct product{operands[side], operands[1 - side]};
    product.left_rows = permutation(q, batch + queries + width);
    product.right_columns = permutation(k, batch + keys + width);
    product.rank = static_cast<int64_t>(out.size());
    return product;
  }

  // Which operand of an operator between the first product and the softmax is the scores.
  size_t number_of_scores(const Node* node) const {
    if (node->kind() == aten::where) {
      return node->inputs().size() == 3 && is_fill(node->input(1)) ? 2 : 1;
    }
    if ((node->kind() == aten::add || node->kind() == aten::mul) &&
        is_tensor(node->input(1)->type())) {
      return leads_to_product(node->input(0)) ? 0 : 1;
    }
    return 0;
  }

  // Whether the scores are above the value, and not a mask.
  bool leads_to_product(const Value* value) const {
    for (const Node* node = value->node(); node->kind().is_aten() && !node->inputs().empty();
         node = node->input(number_of_scores(node))->node()) {
      if (node->kind() == aten::matmul || node->kind() == aten::bmm ||
          node->kind() == aten::baddbmm || node->kind() == aten::einsum) {
        return true;
      }
      if (!is_identity(node) && !step_of(node, number_of_scores(node))) {
        return false;
      }
    }
    return false;
  }

  bool is_fill(const Value* value) const { return real_number(value).has_value(); }

  // Whether the value is a number, or a tensor without dimensions.
  bool is_number(const Value* value) const {
    const auto kind = value->type()->kind();
    if (kind == c10::TypeKind::IntType || kind == c10::TypeKind::FloatType) {
      return true;
    }
    const Fact fact = facts_.of(value);
    return is_tensor(value->type()) && fact.dims == Dims::none &&
           (fact.dtype() == c10::kFloat || is_reduced(fact.dtype())) &&
           fact.device == c10::DeviceType::CPU;
  }

  // Whether the tensor can be part of a mask.
  bool is_term(const Value* value) const {
    const Fact fact = facts_.of(value);
    return is_tensor(value->type()) && fact.dtype() && fact.device == device_ &&
           *fact.dtype() != c10::kDouble && !c10::isComplexType(*fact.dtype());
  }

  std::optional<AttentionStep> step_of(const Node* node, size_t scores) const {
    if (node->inputs().size() < 2 || !is_floating(node->output()) ||
        !is_floating(node->input(scores))) {
      return std::nullopt;
    }
    Value* other = const_cast<Node*>(node)->input(scores == 0 ? 1 : 0);
    const auto kind = node->kind();
    if ((kind == aten::mul || kind == aten::div) && node->inputs().size() == 2 &&
        is_number(other) && (scores == 0 || kind == aten::mul)) {
      return AttentionStep{kind == aten::mul ? AttentionStep::scale : AttentionStep::divide, other};
    }
    if ((kind == aten::add || kind == aten::sub) && is_term(other) && node->inputs().size() == 3) {
      const auto alpha = real_number(node->input(2));
      const double sign = kind == aten::add ? 1 : -1;
      // `alpha` is of the second operand.
      return alpha && (scores == 0 || *alpha == 1)
                 ? std::optional(AttentionStep{AttentionStep::add, other, sign * *alpha})
                 : std::nullopt;
    }
    if (kind == aten::masked_fill && node->inputs().size() == 3) {
      return exclusion(AttentionStep::exclude, const_cast<Node*>(node)->input(1), node->input(2),
                       node->input(0));
    }
    if (kind == aten::where && node->inputs().size() == 3) {
      return exclusion(scores == 1 ? AttentionStep::keep : AttentionStep::exclude,
                       const_cast<Node*>(node)->input(0), node->input(3 - scores),
                       node->input(scores));
    }
    return std::nullopt;
  }

  // None where the dtype does not have the number: then the program raises.
  std::optional<AttentionStep> exclusion(AttentionStep::Kind kind, Value* which, const Value* with,
                                         const Value* scores) const {
    const auto fill = real_number(with);
    const auto scalar_type = dtype(scores);
    if (!fill || *fill > kLow || !scalar_type || dtype(which) != c10::kBool ||
        facts_.of(which).device != device_) {
      return std::nullopt;
    }
    const double lowest = *scalar_type == c10::kHalf ? -65504.0
                          : *scalar_type == c10::kBFloat16
                              ? -3.3895313892515355e38
                              : static_cast<double>(std::numeric_limits<float>::lowest());
    return std::isinf(*fill) || *fill >= lowest
               ? std::optional(AttentionStep{kind, which, 1, *fill})
               : std::nullopt;
  }

  // The dtype of an operand before it was widened, which loses nothing; views come after that.
  std::optional<c10::ScalarType> narrow_dtype(const Value* value) const {
    const auto is_view = [&](const Node* node) {  // but not of another dtype
      const Strides strides = traits_of(node).strides;
      return (strides == Strides::viewed || strides == Strides::permuted) &&
             dtype(node->input(0)) == dtype(node->output());
    };
    while (dtype(value) == c10::kFloat && is_view(value->node())) {
      value = value->node()->input(0);
    }
    const Node* node = value->node();
    return node->kind() == aten::to && dtype(value) == c10::kFloat ? dtype(node->input(0))
                                                                   : dtype(value);
  }

  // Whether the operator can compute it: all in one reduced dtype, on one device.
  bool is_computable(Attention& found) const {
    const auto result = dtype(found.last()->output());
    for (const Value* value : {found.first.left, found.first.right, found.z}) {
      if (!is_reduced(result) || narrow_dtype(value) != result ||
          facts_.of(value).device != device_) {
        return false;
      }
    }
    if (dtype(found.z) != result) {
      return false;
    }
    for (Value* value : {found.first.left, found.first.right}) {
      if (dtype(value) != result) {
        found.widened.push_back(value);
      }
    }
    found.has_half |= result == c10::kHalf;
    const auto is = [&](AttentionStep::Kind kind) {
      return std::any_of(found.steps.begin(), found.steps.end(),
                         [&](const AttentionStep& step) { return step.kind == kind; });
    };
    const bool is_finite = std::any_of(
        found.steps.begin(), found.steps.end(),
        [](const AttentionStep& step) { return step.fill != 0 && !std::isinf(step.fill); });
    found.dtype = *result;
    found.device = device_;
    if (found.is_on_gpu() && (is_finite || !has_exact_mask(found))) {
      return false;
    }
    return !is_finite ||
           !is(AttentionStep::add);  // how low a number is, is known of products alone
  }

  // Whether the dtype has each number of the mask: one tensor that is in it, and minus infinity.
  bool has_exact_mask(const Attention& found) const {
    bool has_mask = false, has_term = false;
    for (const AttentionStep& step : found.steps) {
      const bool is_term = step.kind == AttentionStep::add;
      const bool is_scale = step.kind == AttentionStep::scale || step.kind == AttentionStep::divide;
      if ((has_mask && is_scale) || (has_term && is_term) ||
          (is_term && (std::abs(step.factor) != 1 || !is_exact(step.operand, found.dtype)))) {
        return false;
      }
      has_term |= is_term;
      has_mask |= !is_scale;
    }
    return true;
  }

  // Whether a conversion to the dtype loses nothing.
  bool is_exact(const Value* value, c10::ScalarType dtype) const {
    const at::Tensor* tensor = tensor_in(value->node());
    return this->dtype(value) == dtype ||
           (tensor && tensor->layout() == c10::kStrided && tensor->is_floating_point() &&
            tensor->to(dtype).to(tensor->scalar_type()).equal(*tensor));
  }

  const Facts& facts_;
  const c10::DeviceType device_;  // of all operands, the numbers apart
};

}  // namespace

bool is_batched_product(const Node* node) {
  return node->kind() == aten::matmul || node->kind() == aten::bmm || node->kind() == aten::baddbmm;
}

std::vector<Attention> find_attention(Graph& graph, const Facts& facts) {
  std::vector<Attention> found;
  for (Node* node : all_nodes(graph)) {
    const auto device =
        node->outputs().size() == 1 ? facts.of(node->output()).device : std::nullopt;
    if (device == c10::DeviceType::CPU || device == c10::DeviceType::CUDA) {
      if (auto attention = Matcher(facts, *device).at(node)) {
        found.push_back(std::move(*attention));
      }
    }
  }
  return found;
}

}  // namespace jit_amp
