// pytorch_release: what only some of the supported releases of PyTorch have, under one name for
// all.
//
// All that C++ knows of a release stands here. What an operator does in a release is asked of the
// dispatcher, and is no matter of this file.
#pragma once

#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>
#include <torch/version.h>

#include <array>

#define JIT_AMP_SINCE_TORCH_2(minor) (TORCH_VERSION_MAJOR > 2 || TORCH_VERSION_MINOR >= (minor))

namespace jit_amp {

// The devices that torch.autocast takes (ATen/autocast_mode.h, `is_autocast_available`).
#if JIT_AMP_SINCE_TORCH_2(7)
inline const auto& kDevices = at::autocast::_AUTOCAST_SUPPORTED_DEVICES;
#else
inline constexpr std::array kDevices{c10::DeviceType::CPU, c10::DeviceType::CUDA,
                                     c10::DeviceType::XPU, c10::DeviceType::IPU,
                                     c10::DeviceType::HPU, c10::DeviceType::XLA,
                                     c10::DeviceType::MPS, c10::DeviceType::PrivateUse1};
#endif

// Whether a device has failed (c10/util/Exception.h); a plain c10::Error until 2.8.
inline bool is_of_the_accelerator(const c10::Error& error) {
#if JIT_AMP_SINCE_TORCH_2(8)
  return dynamic_cast<const c10::AcceleratorError*>(&error) != nullptr;
#else
  return error.msg().rfind("CUDA error: ", 0) == 0;
#endif
}

}  // namespace jit_amp
