#include "analysis/layout.h"

#include <torch/csrc/jit/ir/constants.h>

#include <algorithm>
#include <array>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

template <size_t n>
bool is_one_of(const Node* node, const std::array<c10::Symbol, n>& kinds) {
  return std::find(kinds.begin(), kinds.end(), node->kind()) != kinds.end();
}

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
  static const std::array same{aten::view,   aten::unsqueeze, aten::unflatten,
                               aten::detach, aten::alias,     aten::__getitem__};
  static const std::array permuted{aten::transpose, aten::t, aten::permute};
  static const std::array parts{aten::split,  aten::split_with_sizes, aten::chunk,
                                aten::unbind, aten::select,           aten::slice,
                                aten::narrow};
  if (node->kind() == aten::as_strided) {
    return is_row_major_part(node) ? Layout::contiguous : Layout::any;
  }
  const Layout viewed = layout_of(node->input(0));
  if (is_one_of(node, same) || node->kind() == prim::ListUnpack) {
    return viewed;
  }
  if (is_one_of(node, permuted)) {
    return viewed == Layout::any ? Layout::any : Layout::dense;
  }
  const bool has_rows = viewed == Layout::contiguous && is_one_of(node, parts) && takes_rows(node);
  return has_rows ? Layout::contiguous : Layout::any;
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
      is_one_of(node, std::array{aten::empty_strided, aten::new_empty_strided})) {
    return Layout::any;
  }
  // What is made anew has no gaps.
  return schema->returns()[value->offset()].alias_info() ? layout_of_view(node) : Layout::dense;
}

}  // namespace jit_amp
