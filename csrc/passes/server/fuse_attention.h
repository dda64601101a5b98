// fuse_attention: attention that is written by hand never holds all scores.
//
// `softmax(q @ k.transpose(-2, -1) * scale + mask) @ v` makes scores of the square of the length,
// in memory and several times over. `aten::scaled_dot_product_attention` makes a part of them at a
// time, keeps them in float32, and rounds once where the program rounds at each step. Blocks do
// what the program does, for a few heads or queries at a time, in memory that they take once.
//
// What is found, and what is left alone, says analysis/attention.h.
//
// What is not known when freezing is asked at run time: the number of dimensions, whether sizes
// broadcast as the operator wants. Where the answer is no the program runs as it was written.
//
// On a CPU it is asked, too, whether a row has anything left, which eager gives NaN for and the
// operator zeros, and whether the scores can be infinite. Which way is the fastest was measured:
//
//   - a processor that emulates the dtype: the operator, in float32;
//   - one that computes in bfloat16: blocks, from 128 queries and two million scores on, which fill
//     a processor's cache;
//   - but from 768 queries on the operator, where its kernel is fast: it takes MKL's products;
//   - and never blocks where they would round more often than the program: where that keeps the
//     first product's result in float32, or adds to it before it rounds (`baddbmm`);
//   - one that computes in float16: the operator from 768 queries on;
//   - for less the program runs as it was written.
//
// On CUDA nothing asks for numbers, because each time the CPU would wait for the GPU, and a CUDA
// graph could not be captured. So the result is made NaN where a row of the mask or of q makes it
// so in eager; the mask must have numbers of q's dtype alone, since the kernels take it so; finite
// fills stay as they are written, and so do negative scales, widths that are no multiple of 8, and
// more matrices than the kernels take.
//
// Left alone: scales so small or large that a step overflows; results of an `einsum` that eager
// gives in other strides; what was widened and written to. Where anything else reads scores, where
// gradients are recorded, other devices, other dtypes than bfloat16 and float16.
//
// Results are rounded fewer times, so it is for optimize_numerics=True. Loops must be marked. Must
// run after functionalize and merge_branches.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <memory>

#include "analysis/facts.h"

namespace jit_amp {

// Returns whether the graph changed.
bool fuse_attention(const std::shared_ptr<torch::jit::Graph>& graph, const Facts& facts);

}  // namespace jit_amp
