// devices: what torch says, in Python, of the autocast of a device.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>

namespace jit_amp {

// Whether autocast for the device takes the dtype; where it does not, torch.autocast warns and is
// off. None where the device is a third party's whose module does not say
// (torch/amp/autocast_mode.py).
std::optional<bool> autocast_takes(c10::DeviceType device, c10::ScalarType dtype);

// What torch.autocast raises for the dtype on this machine; None where it does not.
std::optional<std::string> autocast_raises(c10::DeviceType device, c10::ScalarType dtype);

}  // namespace jit_amp
