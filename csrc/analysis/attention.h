// attention: which nodes of a graph compute attention that is written by hand.
//
// `softmax(q @ k.transpose(-2, -1) * scale + mask) @ v`. The rule is algebra. Between the first
// product and the softmax, each operator makes of the scores `S` one of these, so that all of them
// together are `scale * S + mask`:
//
//   - a product with a number or its inverse: of the scale, and of the mask before it;
//   - a sum with a tensor: of the mask;
//   - `masked_fill` or `where` with minus infinity, or with a number so low that nothing is left of
//     it after the softmax: minus infinity in the mask;
//   - a conversion between floating point dtypes, a copy, a dropout that is off: nothing.
//
// The products are `matmul`, `bmm`, `baddbmm` or an `einsum` of two operands; the softmax is over
// the rows or the columns, and the second product takes what it gives from either side.
//
// Not found: what anything else reads the scores of, other devices than CPU and CUDA, other dtypes
// than bfloat16 and float16. On CUDA also finite fills, and masks whose numbers q's dtype does not
// have.
//
// An analysis: the graph does not change.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "analysis/facts.h"

namespace jit_amp {

// Whether the node is a product of matrices that can give the scores, as many as there are.
bool is_batched_product(const torch::jit::Node* node);

// One operator between the first product and the softmax.
struct AttentionStep {
  enum Kind { scale, divide, add, exclude, keep } kind;
  torch::jit::Value* operand =
      nullptr;        // the number; the tensor that is added; what is excluded, or kept
  double factor = 1;  // of the tensor that is added
  double fill = 0;    // what excluded scores become
};

// A product of two matrices as text: how its operands become rows, and what becomes of the rows of
// the result. `rank` is 0 where any number of dimensions will do.
struct AttentionProduct {
  torch::jit::Value *left, *right;
  std::string left_rows = "", right_columns = "";  // as `rows of left` @ `rows of right`.T
  std::string result = "";
  int64_t rank = 0;
  std::string batch = "";  // an einsum's letters
  std::vector<AttentionStep> steps = {};
};

struct Attention {
  std::vector<torch::jit::Node*> chain;  // from the second product up to the first
  AttentionProduct first;
  torch::jit::Value* z = nullptr;  // the other operand of the second product
  std::string v, out;              // what becomes of it, and of the result
  int64_t rank = 0;
  bool is_by_columns = false;
  bool rounds_scores = false;  // the first product gives a reduced dtype, and nothing else
  bool is_wide = false;        // they are scaled, or something is added, in float32
  bool has_half = false;       // float16 has small numbers only
  std::vector<torch::jit::Value*>
      widened;                       // what was converted to float32, which must be as it was then
  std::vector<AttentionStep> steps;  // from the first product down to the softmax
  c10::ScalarType dtype = c10::kFloat;
  c10::DeviceType device = c10::DeviceType::CPU;

  torch::jit::Node* last() const { return chain.front(); }
  bool is_on_gpu() const { return device == c10::DeviceType::CUDA; }
};

// What turns rows into columns, in TorchScript.
inline constexpr const char* kTurned = ".transpose(-2, -1)";

// In program order. Loops must be marked.
std::vector<Attention> find_attention(torch::jit::Graph& graph, const Facts& facts);

}  // namespace jit_amp
