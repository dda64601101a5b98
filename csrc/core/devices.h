// devices: the devices that autocast knows, and what torch says of them in Python.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <optional>
#include <string>

#include "core/pytorch_release.h"

namespace jit_amp {

inline constexpr size_t kDeviceCount = std::tuple_size_v<std::decay_t<decltype(kDevices)>>;
using PerDevice = std::array<bool, kDeviceCount>;

// The accelerators whose autocast lists jit_amp has (analysis/policy.h).
inline constexpr std::array kAccelerators{c10::DeviceType::CUDA, c10::DeviceType::XPU,
                                          c10::DeviceType::MPS};
// Whether that is one of them, or the CPU.
bool has_lists(c10::DeviceType device);

// The accelerator that this process has, or could have: CUDA, where there is no other.
c10::DeviceType accelerator_here();

// A source that is written for the CPU and CUDA, with another accelerator's name in CUDA's place:
// `x.is_xpu`.
std::string written_for(c10::DeviceType accelerator, const std::string& source);

// For which devices autocast is on in this thread.
PerDevice autocasts_on();

// Whether autocast is on around for a device, and off inside. An operator's own autocast kernel is
// seen by that (ATen/autocast_mode.h): what runs in it runs without autocast.
bool is_switched_off(const PerDevice& around, const PerDevice& inside);

// Whether autocast for the device takes the dtype; where it does not, torch.autocast warns and is
// off. None where the device is a third party's whose module does not say
// (torch/amp/autocast_mode.py).
std::optional<bool> autocast_takes(c10::DeviceType device, c10::ScalarType dtype);

// What torch.autocast raises for the dtype on this machine; None where it does not.
std::optional<std::string> autocast_raises(c10::DeviceType device, c10::ScalarType dtype);

}  // namespace jit_amp
