#include "runtime/gradients.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <stdexcept>
#include <string_view>

#include "core/ambient.h"

namespace jit_amp {
namespace {

using at::Tensor;

// GradScaler begins with 65536.
constexpr std::array<double, 7> kScales = {0x1p0, 0x1p4, 0x1p8, 0x1p12, 0x1p16, 0x1p20, 0x1p24};

Tensor loss_of(const std::vector<Tensor>& outputs) {
  const at::AutoGradMode recording(true);
  Tensor loss;
  for (const Tensor& output : outputs) {
    if (output.defined() && output.requires_grad() && output.numel()) {
      const Tensor real = at::isComplexType(output.scalar_type()) ? at::real(output) : output;
      const Tensor mean = real.to(at::kFloat).mean();
      loss = loss.defined() ? loss + mean : mean;
    }
  }
  if (!loss.defined()) {
    throw std::runtime_error(
        "gradients=True needs a result that requires grad: give an input or parameter that does, "
        "and call it outside torch.no_grad(). Results are looked for in tuples, lists, "
        "dictionaries and data classes. A training step has to return its loss, without "
        "`backward()`");
  }
  return loss;
}

// Autograd's gradients of `edges`, where that of the loss is `scale`.
torch::autograd::variable_list back_through(const Tensor& loss, double scale,
                                            const std::vector<torch::autograd::Edge>& edges) {
  try {
    return torch::autograd::Engine::get_default_engine().execute(
        {torch::autograd::impl::gradient_edge(loss)}, {at::full({}, scale, loss.options())},
        /*keep_graph=*/true, /*create_graph=*/false, /*accumulate_grad=*/false, edges);
  } catch (const std::exception& error) {
    // torch/csrc/autograd/function.h, ERR_BACKWARD_TWICE
    if (std::string_view(error.what()).find("second time") == std::string_view::npos) {
      throw;
    }
    throw std::runtime_error(
        "gradients=True runs autograd itself, and the program has done so and freed its graph: "
        "give the function that returns the loss, without `backward()`");
  }
}

// What one scale shows of a gradient: the zeros it has.
int64_t look(Gradient& found, const Tensor& gradient, double scale) {
  const Tensor g = gradient.is_sparse() ? gradient._values() : gradient;
  found.dtype = g.scalar_type();
  found.elements = std::max(found.elements, g.numel());
  if (!found.overflow_scale && !g.isfinite().all().item<bool>()) {
    found.overflow_scale = scale;
  }
  if (!found.overflow_scale) {
    found.largest = std::max(found.largest, g.abs().max().to(at::kDouble).item<double>() / scale);
  }
  return g.eq(0).sum().item<int64_t>();
}

}  // namespace

std::vector<Gradient> gradients_of(const std::vector<Tensor>& outputs,
                                   const std::vector<torch::autograd::Edge>& edges) {
  const NoAutocastGuard off;
  const Tensor loss = loss_of(outputs);
  std::vector<Gradient> found(edges.size());
  std::vector<int64_t> zeros(edges.size());
  for (const double scale : kScales) {
    const auto gradients = back_through(loss, scale, edges);
    const at::NoGradGuard no_grad;
    for (size_t i = 0; i < edges.size(); ++i) {
      if (!gradients[i].defined() || !gradients[i].numel()) {
        continue;
      }
      const int64_t now = look(found[i], gradients[i], scale);
      if (scale == kScales.front()) {
        zeros[i] = now;
      }
      if (!found[i].overflow_scale) {
        found[i].underflows = std::max(found[i].underflows, zeros[i] - now);
      }
    }
  }
  return found;
}

}  // namespace jit_amp
