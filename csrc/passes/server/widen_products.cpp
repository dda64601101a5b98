#include "passes/server/widen_products.h"

#include <ATen/ATen.h>
#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "analysis/thresholds.h"
#include "analysis/traits.h"
#include "core/graphs.h"
#include "core/processor.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool is_product(const Node* node) {
  const Group group = traits_of(node).group;
  const FunctionSchema* schema = node->maybeSchema();
  return (group == Group::product || group == Group::convolution || group == Group::recurrent) &&
         schema && !is_write(node) &&
         (schema->overload_name().empty() || schema->overload_name() == "input" ||
          schema->overload_name() == "padding" || schema->overload_name() == "deprecated");
}

std::optional<c10::ScalarType> reduced_dtype_of(const Value* value) {
  const at::Tensor* tensor = tensor_in(value->node());
  return tensor && tensor->device().is_cpu() && question_about(tensor->scalar_type())
             ? std::optional(tensor->scalar_type())
             : std::nullopt;
}

// All tensors that the node takes; none where that is not known, or where there is no product: of
// one operand `einsum` may give a view, whose memory is the operand's.
std::optional<std::vector<Value*>> operands_of(Node* node) {
  std::vector<Value*> operands;
  for (Value* input : node->inputs()) {
    if (is_tensor_list(input->type())) {
      if (!is_fixed_list(input)) {
        return std::nullopt;
      }
      const auto elements = input->node()->inputs();
      operands.insert(operands.end(), elements.begin(), elements.end());
    } else if (is_tensor(input->type())) {
      operands.push_back(input);
    } else if (input->type()->kind() == c10::TypeKind::OptionalType && !input->mustBeNone() &&
               input->type()->isSubtypeOf(*c10::OptionalType::ofTensor())) {
      return std::nullopt;
    }
  }
  // A mask may be of any dtype.
  const bool has_mask =
      node->kind() == Symbol::aten("scaled_dot_product_attention") && !node->input(3)->mustBeNone();
  return has_mask || operands.size() < 2 ? std::nullopt : std::optional(operands);
}

class Widener {
 public:
  explicit Widener(Graph& graph) : graph_(graph) {}

  void widen(Node* node, c10::ScalarType dtype, const std::vector<Value*>& operands) {
    const WithInsertPoint here(node);
    Value* condition = asked(node, dtype, operands);
    Node* choice = graph_.insertNode(graph_.create(prim::If, {condition}, node->outputs().size()));
    choice->setSourceRange(node->sourceRange());
    for (size_t i = 0; i < node->outputs().size(); ++i) {
      choice->output(i)->copyMetadata(node->output(i));
      node->output(i)->replaceAllUsesWith(choice->output(i));
    }
    Block* wide = choice->addBlock();
    {
      const WithInsertPoint inside(wide);
      Node* copy =
          graph_.insertNode(graph_.createClone(node, [&](Value* value) { return widened(value); }));
      for (Value* output : copy->outputs()) {
        output->setDebugName("");
        wide->registerOutput(to(output, dtype));
      }
    }
    Block* narrow = choice->addBlock();
    node->moveBefore(narrow->return_node());  // to be widened for another dtype too
    for (Value* output : node->outputs()) {
      output->setDebugName("");  // the choice has it
      narrow->registerOutput(output);
    }
  }

 private:
  Value* to(Value* value, c10::ScalarType dtype) {
    return graph_.insert(aten::to,
                         {value, static_cast<int64_t>(dtype), false, false, c10::IValue()});
  }

  Value* widened(Value* value) {
    if (is_tensor_list(value->type())) {
      std::vector<Value*> elements;
      for (Value* element : value->node()->inputs()) {
        elements.push_back(to(element, c10::kFloat));
      }
      return graph_.insertNode(graph_.createList(c10::TensorType::get(), elements))->output();
    }
    return is_tensor(value->type()) ? to(value, c10::kFloat) : value;
  }

  // Whether the operands are to be widened, as a value of the graph.
  Value* asked(Node* node, c10::ScalarType dtype, const std::vector<Value*>& operands) {
    Value *emulated = is_emulated(graph_, dtype), *x = operands[0];
    const auto numel = [&] { return graph_.insert(Symbol::aten("numel"), {x}); };
    const bool has_weight = operands.size() > 1 && reduced_dtype_of(operands[1]);
    if (node->kind() == aten::linear && has_weight) {
      const at::Tensor& weight = *tensor_in(operands[1]->node());
      const int64_t least =
          std::max(kFewRows * weight.size(1), (kWorthwhile + weight.size(0) - 1) / weight.size(0));
      const auto is_worth_it = [&] {
        Value* fits = graph_.insert(aten::ge, {numel(), least});
        if (weight.numel() < kLargeWeight) {
          return fits;
        }
        // pack_weights may hold it widened
        Value* is_wide = graph_.insert(aten::eq, {graph_.insert(prim::dtype, {operands[1]}),
                                                  static_cast<int64_t>(c10::kFloat)});
        return graph_.insert(aten::__or__, {fits, is_wide});
      };
      return insert_if(emulated, is_worth_it, [&] { return graph_.insertConstant(false); });
    }
    // Where they only multiply element by element these two promote operands of two dtypes.
    const bool promotes = node->kind() == aten::einsum || node->kind() == Symbol::aten("tensordot");
    if (has_weight && !promotes && node->kind() != aten::matmul && node->kind() != aten::mm) {
      return emulated;
    }
    const auto fits_here = [&] {
      const auto is_of_it = [&](Value* value) {
        Value* its = graph_.insert(prim::dtype, {value});
        return graph_.insert(aten::eq, {its, static_cast<int64_t>(dtype)});
      };
      Value* fits = is_of_it(x);
      for (size_t i = 1; promotes && i < operands.size(); ++i) {
        if (!tensor_in(operands[i]->node())) {
          fits = graph_.insert(aten::__and__, {fits, is_of_it(operands[i])});
        }
      }
      fits = graph_.insert(aten::__and__, {fits, graph_.insert(Symbol::prim("is_cpu"), {x})});
      if (node->kind() == aten::matmul || node->kind() == aten::bmm || node->kind() == aten::mm) {
        Value* wide = graph_.insert(aten::size, {node->input(1), -1});
        Value* products = graph_.insert(aten::mul, {numel(), wide});
        fits = graph_.insert(aten::__and__,
                             {fits, graph_.insert(aten::ge, {products, kWorthwhileProduct})});
      }
      return fits;
    };
    return insert_if(emulated, fits_here, [&] { return graph_.insertConstant(false); });
  }

  Graph& graph_;
};

// Reduced dtypes that the graph converts to, or has weights of.
std::set<c10::ScalarType> dtypes_of(Graph& graph) {
  std::set<c10::ScalarType> found;
  for (const Node* node : all_nodes(graph)) {
    if (const at::Tensor* tensor = tensor_in(node);
        tensor && question_about(tensor->scalar_type())) {
      found.insert(tensor->scalar_type());
    }
    if (node->kind() == aten::to && node->inputs().size() > 1) {
      const auto target = toIValue(node->input(1));
      if (target && target->isInt() && question_about(c10::ScalarType(target->toInt()))) {
        found.insert(c10::ScalarType(target->toInt()));
      }
    }
  }
  return found;
}

}  // namespace

bool widen_products(Graph& graph) {
  const auto dtypes = dtypes_of(graph);
  Widener widener(graph);
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    const auto operands = is_product(node) ? operands_of(node) : std::nullopt;
    if (!operands) {
      continue;
    }
    std::set<c10::ScalarType> held;  // by weights
    bool is_small = false;
    for (Value* operand : *operands) {
      if (const at::Tensor* tensor = tensor_in(operand->node())) {
        held.insert(tensor->scalar_type());
        is_small |= node->kind() == aten::linear && operand == node->input(1) &&
                    tensor->numel() < kTooSmallToWiden;
      }
    }
    for (const c10::ScalarType dtype : is_small ? std::set<c10::ScalarType>() : dtypes) {
      if (held.empty() || (held.size() == 1 && held.count(dtype))) {
        widener.widen(node, dtype, *operands);
        changed = true;
      }
    }
  }
  return changed;
}

}  // namespace jit_amp
