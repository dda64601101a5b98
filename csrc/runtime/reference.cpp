#include "runtime/reference.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <stdexcept>

#include "analysis/traits.h"
#include "core/dialect.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Whether two calls on the same operands may differ: the results are what memory held before, as
// the seeds of attention that drops nothing are, or LAPACK's, whose last bits depend on how its
// memory is aligned.
bool varies(const Node* node) {
  static const Symbol attention = Symbol::aten("_efficient_attention_forward");
  return traits_of(node).memory == Memory::unwritten || node->kind() == attention ||
         node->kind() == aten::linalg_lstsq;
}

// Nothing is known of what it does.
bool is_of_a_library(const Node* node) {
  const c10::Symbol kind = node->kind();
  return !kind.is_aten() && !kind.is_prim() && kind.ns() != ops::scoped.ns();
}

bool is_bit_for_bit(const at::Tensor& a, const at::Tensor& b) {
  if (a.defined() != b.defined()) {
    return false;
  }
  if (!a.defined()) {
    return true;
  }
  if (a.scalar_type() != b.scalar_type() || a.layout() != b.layout() || a.device() != b.device()) {
    return false;
  }
  if (a.layout() != c10::kStrided || a.is_nested() || a.is_quantized() || a.is_meta()) {
    return true;  // no operator compares them all
  }
  const at::NoGradGuard off;
  return a.sizes() == b.sizes() && a.allclose(b, /*rtol=*/0, /*atol=*/0, /*equal_nan=*/true);
}

bool is_bit_for_bit(const c10::IValue& a, const c10::IValue& b) {
  const auto all = [](const auto& as, const auto& bs) {
    return as.size() == bs.size() &&
           std::equal(as.begin(), as.end(), bs.begin(), [](const auto& x, const auto& y) {
             return is_bit_for_bit(c10::IValue(x), c10::IValue(y));
           });
  };
  if (a.isTensor() && b.isTensor()) {
    return is_bit_for_bit(a.toTensor(), b.toTensor());
  }
  if (a.isTuple() && b.isTuple()) {
    return all(a.toTupleRef().elements().vec(), b.toTupleRef().elements().vec());
  }
  if (a.isList() && b.isList()) {
    return all(a.toListRef(), b.toListRef());
  }
  return a.tagKind() == b.tagKind();
}

}  // namespace

bool is_repeatable(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::none_of(nodes.begin(), nodes.end(), [](const Node* node) {
    return is_of_a_library(node) || node->kind() == prim::PythonOp || node->kind() == prim::fork ||
           node->kind() == prim::SetAttr || node->kind() == prim::CallMethod ||
           node->kind() == prim::Print || node->kind() == ops::scoped_effect ||
           node->kind() == aten::warn || node->isNondeterministic() || varies(node) ||
           is_write(node) || updates_statistics(node) ||
           (node->hasAttribute(attr::Subgraph) && !is_repeatable(*node->g(attr::Subgraph)));
  });
}

void check_same(const std::vector<c10::IValue>& lowered, const std::vector<c10::IValue>& reference,
                const std::string& name) {
  for (size_t i = 0; i < lowered.size(); ++i) {
    if (!is_bit_for_bit(lowered[i], reference[i])) {
      const auto text = [](const c10::IValue& value) {
        return value.isTensor() && value.toTensor().defined()
                   ? c10::str(value.toTensor().toString(), " ", value.toTensor())
                   : c10::str(value);
      };
      throw std::logic_error(c10::str("jit_amp: result ", i, " of `", name, "` is\n",
                                      text(lowered[i]), "\nand eager's is\n", text(reference[i])));
    }
  }
}

}  // namespace jit_amp
