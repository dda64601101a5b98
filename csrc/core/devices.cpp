#include "core/devices.h"

#include <ATen/Context.h>
#include <c10/core/Device.h>
#include <torch/csrc/jit/python/pybind_utils.h>

#include <algorithm>
#include <regex>

namespace jit_amp {

bool has_lists(c10::DeviceType device) {
  return device == c10::DeviceType::CPU ||
         std::find(kAccelerators.begin(), kAccelerators.end(), device) != kAccelerators.end();
}

c10::DeviceType accelerator_here() {
  return at::hasXPU()   ? c10::DeviceType::XPU
         : at::hasMPS() ? c10::DeviceType::MPS
                        : c10::DeviceType::CUDA;
}

std::string written_for(c10::DeviceType accelerator, const std::string& source) {
  if (accelerator == c10::DeviceType::CUDA || accelerator == c10::DeviceType::CPU) {
    return source;
  }
  const auto name = [&](bool lower_case) { return c10::DeviceTypeName(accelerator, lower_case); };
  return std::regex_replace(std::regex_replace(source, std::regex("cuda"), name(true)),
                            std::regex("CUDA"), name(false));
}

PerDevice autocasts_on() {
  PerDevice on;
  std::transform(kDevices.begin(), kDevices.end(), on.begin(), at::autocast::is_autocast_enabled);
  return on;
}

bool is_switched_off(const PerDevice& around, const PerDevice& inside) {
  for (size_t i = 0; i < kDeviceCount; ++i) {
    if (around[i] && !inside[i]) {
      return true;
    }
  }
  return false;
}

std::optional<bool> autocast_takes(c10::DeviceType device, c10::ScalarType dtype) {
  if (device == c10::DeviceType::CUDA) {
    return true;
  }
  if (device != c10::DeviceType::PrivateUse1) {
    return dtype == c10::kBFloat16 || dtype == c10::kHalf;
  }
  const py::gil_scoped_acquire gil;
  const auto torch = py::module_::import("torch");
  const auto module = py::getattr(torch, c10::get_privateuse1_backend().c_str(), py::none());
  const auto taken = py::getattr(module, "get_amp_supported_dtype", py::none());
  return taken.is_none() ? std::nullopt : std::optional(taken().contains(py::cast(dtype)));
}

std::optional<std::string> autocast_raises(c10::DeviceType device, c10::ScalarType dtype) {
  if (device != c10::DeviceType::CUDA || dtype != c10::kBFloat16 || !at::hasCUDA()) {
    return std::nullopt;
  }
  const py::gil_scoped_acquire gil;
  const auto cuda = py::module_::import("torch.cuda");
  return py::cast<bool>(cuda.attr("is_bf16_supported")())
             ? std::nullopt
             : std::optional<std::string>(
                   "the current CUDA device does not support bfloat16: give "
                   "the autocast scope float16");
}

}  // namespace jit_amp
