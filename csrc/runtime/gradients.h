// gradients: where the gradients of a program overflow or underflow, and under which loss scale.
//
// float16 holds numbers from 6e-8 to 65504. Training in it multiplies the loss by a scale
// (torch.amp.GradScaler) so that small gradients do not become zero, and then large ones may become
// infinite. gradients_of runs autograd once for each of several scales, on one recorded run of the
// program, and looks at the gradient of each operator's results in the dtype that it has there.
// Nothing is accumulated: no tensor's `.grad` is touched.
#pragma once

#include <ATen/core/Tensor.h>
#include <torch/csrc/autograd/edge.h>

#include <optional>
#include <vector>

namespace jit_amp {

struct Gradient {
  c10::ScalarType dtype = c10::ScalarType::Undefined;
  double largest = 0;                    // entry, with a loss scale of 1
  int64_t elements = 0;                  // 0: no gradient came
  int64_t underflows = 0;                // zero with a scale of 1, and not with a larger one
  std::optional<double> overflow_scale;  // the smallest scale tried at which it is not finite
};

// The gradients of what `edges` stand for. The loss is the result, if that is one number, and else
// the sum of the means of `outputs`. Throws std::runtime_error where no output requires grad, and
// where the program has run autograd itself and so freed what it had recorded.
std::vector<Gradient> gradients_of(const std::vector<at::Tensor>& outputs,
                                   const std::vector<torch::autograd::Edge>& edges);

}  // namespace jit_amp
