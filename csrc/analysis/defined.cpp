#include "analysis/defined.h"

#include <ATen/Context.h>
#include <ATen/Functions.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/InferenceMode.h>

#include <algorithm>

#include "analysis/policy.h"
#include "core/ambient.h"
#include "core/definitions.h"
#include "core/devices.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

bool is_for_cpu_alone(const AutocastState& state) {
  return std::all_of(state.devices.begin(), state.devices.end(), [](const auto& device) {
    return device.second.enabled == (device.first == at::kCPU);
  });
}

// The accelerator that the state is for; CUDA, where for none. None where it is for two, or for a
// device without lists, which the definitions do not know.
std::optional<c10::DeviceType> accelerator_in(const AutocastState& state) {
  std::optional<c10::DeviceType> found;
  for (const auto& [device, inside] : state.devices) {
    if (inside.enabled && device != at::kCPU) {
      if (found || !has_lists(device)) {
        return std::nullopt;
      }
      found = device;
    }
  }
  return found.value_or(at::kCUDA);
}

// The sources of definitions, and where each holds. The first that does and has the operator is it.
struct DefinitionSource {
  const char* text;
  bool (*holds)(const c10::FunctionSchema& op, const AutocastState& state);
};

// What was seen of a composite's code holds on each device that runs the same.
bool on_any_device(const c10::FunctionSchema& op, const AutocastState& state) {
  return accelerator_in(state) == at::kCUDA || is_shared_code(op);
}
bool on_cpu_alone(const c10::FunctionSchema&, const AutocastState& state) {
  return is_for_cpu_alone(state);
}
// What CUDA's autocast alone does to an operator.
bool on_cuda(const c10::FunctionSchema& op, const AutocastState& state) {
  return accelerator_in(state) == at::kCUDA &&
         (!state.active(at::kCPU) || policy_of(op, at::kCPU) == Policy::untouched);
}
// And XPU's, which has CUDA's lists.
bool on_cuda_or_xpu(const c10::FunctionSchema& op, const AutocastState& state) {
  return on_cuda(op, state) ||
         (accelerator_in(state) == at::kXPU && is_shared_code(op) &&
          (!state.active(at::kCPU) || policy_of(op, at::kCPU) == Policy::untouched));
}

constexpr DefinitionSource kSources[]{
    {kLosses, on_any_device},        {kMath, on_any_device},      {kMathOnCpu, on_cpu_alone},
    {kMathOnCuda, on_cuda_or_xpu},   {kPadding, on_any_device},   {kProductsOnCpu, on_cpu_alone},
    {kRecurrentOnCpu, on_cpu_alone}, {kRecurrentOnCuda, on_cuda}, {kTransformerOnCpu, on_cpu_alone},
};

// The name that an operator's definition has: definitions.h.
std::string name_of_definition(const c10::FunctionSchema& schema) {
  const std::string name = c10::Symbol::fromQualString(schema.name()).toUnqualString();
  return schema.overload_name().empty() ? name : name + "__" + schema.overload_name();
}

bool onednn_takes(c10::ScalarType dtype) {
  const char* name = dtype == c10::kBFloat16 ? "mkldnn::_is_mkldnn_bf16_supported"
                                             : "mkldnn::_is_mkldnn_fp16_supported";
  const auto asked = c10::Dispatcher::singleton().findSchema({name, ""});
  return asked && asked->typed<bool()>().call();
}

// Whether eager's result of float32 operands in a bfloat16 scope is bfloat16: for what differs from
// one release to the next. Where the machine has no such operator, it is the release that tries.
template <typename F>
bool is_lowered(F&& result) {
  const c10::InferenceMode no_gradients;
  const AutocastGuard scope({{at::kCPU, true, c10::kBFloat16}}, std::nullopt);
  try {
    return result().scalar_type() == c10::kBFloat16;
  } catch (const std::exception&) {
    return true;
  }
}

at::Tensor ones(at::IntArrayRef sizes, c10::ScalarType dtype = c10::kFloat) {
  return at::ones(sizes, c10::TensorOptions(dtype).device(c10::kCPU));
}

// An LSTM on packed sequences that are all of one length: oneDNN's from PyTorch 2.13 on.
bool onednn_unpacks() {
  return is_lowered([] {
    return std::get<0>(at::lstm(ones({1, 1}), ones({1}, c10::kLong),
                                {ones({1, 1, 1}), ones({1, 1, 1})}, {ones({4, 1}), ones({4, 1})},
                                /*has_biases=*/false,
                                /*num_layers=*/1, /*dropout=*/0.0, /*train=*/false,
                                /*bidirectional=*/false));
  });
}

// A tensordot to one number: not by `mm` in later releases.
bool tensordot_is_mm() {
  return is_lowered([] { return at::tensordot(ones({2}), ones({2}), {0}, {0}); });
}

// Functions that all definitions have: what the state and this machine say. And `lowered`, for
// which `specialize` puts a cast.
std::string preamble(const AutocastState& state) {
  const auto function = [](const char* name, bool value) {
    return c10::str("def ", name, "() -> bool:\n    return ", value ? "True" : "False", "\n\n");
  };
  const DeviceState cpu = state.at(at::kCPU);
  const bool has_onednn = at::globalContext().userEnabledMkldnn() && at::hasMKLDNN();
  static const bool unpacks = onednn_unpacks();
  static const bool always_mm = tensordot_is_mm();
  return "def lowered(x: Tensor) -> Tensor:\n    return x\n\n" +
         function("has_onednn", has_onednn) + function("onednn_unpacks", has_onednn && unpacks) +
         function("tensordot_is_mm", always_mm) +
         function("is_for_float16", state.at(at::kCUDA).dtype == c10::kHalf) +
         function("onednn_takes_lower", has_onednn && cpu.dtype && onednn_takes(*cpu.dtype));
}

}  // namespace

std::optional<Defined> defined(const c10::FunctionSchema& op, const AutocastState& state) {
  const auto accelerator = accelerator_in(state);
  if (!accelerator || op.name().rfind("aten::", 0) != 0) {
    return std::nullopt;
  }
  const std::string name = name_of_definition(op);
  const std::string known = preamble(state);
  for (const DefinitionSource& source : kSources) {
    const std::string text = known + written_for(*accelerator, source.text);
    if (has_definition(text, name) && source.holds(op, state)) {
      return Defined{text, name};
    }
  }
  return std::nullopt;
}

bool is_defined(const c10::FunctionSchema& op, c10::DeviceType device) {
  AutocastState state;
  state.devices[device] = {true, c10::kBFloat16};
  return defined(op, state).has_value();
}

}  // namespace jit_amp
