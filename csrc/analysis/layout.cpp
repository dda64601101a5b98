#include "analysis/layout.h"

#include <torch/csrc/jit/ir/constants.h>

#include "analysis/traits.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

Layout layout_of_constant(const Node* node) {
  const at::Tensor* tensor = tensor_in(node);
  if (!tensor || tensor->layout() != at::kStrided) {
    return Layout::any;
  }
  return tensor->is_contiguous()                  ? Layout::contiguous
         : tensor->is_non_overlapping_and_dense() ? Layout::dense
                                                  : Layout::any;
}

// Whole rows, one after the other: parts along the first dimension.
bool takes_rows(const Node* node) {
  const auto* schema = node->maybeSchema();
  const auto dim = schema ? schema->argumentIndexWithName("dim") : std::nullopt;
  const auto step = schema ? schema->argumentIndexWithName("step") : std::nullopt;
  return dim && constant_as<int64_t>(node->input(*dim)) == 0 &&
         (!step || constant_as<int64_t>(node->input(*step)) == 1);
}

// A part of all that the constant's memory holds, by numbers: what share_parts writes.
bool is_row_major_part(const Node* node) {
  const at::Tensor* whole = tensor_in(node->input(0)->node());
  const auto sizes = toIValue(node->input(1));
  const auto strides = toIValue(node->input(2));
  if (!whole || !whole->is_contiguous() || whole->storage_offset() != 0 || !sizes || !strides) {
    return false;
  }
  int64_t expected = 1;
  const auto lengths = sizes->toIntVector();
  const auto steps = strides->toIntVector();
  for (size_t i = lengths.size(); i-- > 0;) {
    if (lengths[i] != 1 && steps[i] != expected) {
      return false;
    }
    expected *= lengths[i];
  }
  return true;
}

Layout layout_of_view(const Node* node) {
  if (node->kind() == aten::as_strided) {
    return is_row_major_part(node) ? Layout::contiguous : Layout::any;
  }
  const Layout viewed = layout_of(node->input(0));
  const Strides strides = traits_of(node).strides;
  if (strides == Strides::viewed || node->kind() == prim::ListUnpack) {
    return viewed;
  }
  if (strides == Strides::permuted) {
    return viewed == Layout::any ? Layout::any : Layout::dense;
  }
  const bool has_rows =
      viewed == Layout::contiguous && strides == Strides::parts && takes_rows(node);
  return has_rows ? Layout::contiguous : Layout::any;
}

// Of what is new, or the operand itself, or a view of it.
Layout layout_of_either(const Node* node) {
  const Group group = traits_of(node).group;
  const bool is_dense = group == Group::identity || group == Group::dropout
                            ? layout_of(node->input(0)) != Layout::any
                            : node->kind() == aten::einsum &&  // of several operands it is new
                                  node->input(1)->node()->kind() == prim::ListConstruct &&
                                  node->input(1)->node()->inputs().size() > 1;
  return is_dense ? Layout::dense : Layout::any;
}

}  // namespace

Layout layout_of(const Value* value) {
  const Node* node = value->node();
  if (node->kind() == prim::Constant) {
    return layout_of_constant(node);
  }
  if (node->kind() == prim::ListUnpack) {
    return layout_of_view(node);
  }
  const auto* schema = node->kind().is_aten() ? node->maybeSchema() : nullptr;
  if (!schema || value->offset() >= schema->returns().size() ||
      traits_of(node).strides == Strides::asked) {
    return Layout::any;
  }
  if (may_return_operand(node)) {
    return layout_of_either(node);
  }
  // What is made anew has no gaps.
  return schema->returns()[value->offset()].alias_info() ? layout_of_view(node) : Layout::dense;
}

}  // namespace jit_amp
