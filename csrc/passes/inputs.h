// inputs: what examples tell of the values that a caller gives, and a check of it.
//
// A tensor has a dtype and a device, and dimensions or none, on which type promotion rests; a
// tuple, list or dictionary has parts. A list has elements or none, and all are alike; a dictionary
// has the keys that it has. What several examples tell is joined: what differs is not known.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <optional>
#include <string>
#include <vector>

namespace jit_amp {

struct Fact {
  std::optional<c10::ScalarType> dtype;
  std::optional<c10::DeviceType> device;
};

struct Input {
  enum Kind {
    unknown,
    plain,   // no tensor can be in it
    none,    // None, where a tensor could be
    tensor,  // `fact`
    tuple,   // `parts`, by position
    list,    // `parts` has one for all elements, or none where it is empty
    dict     // `parts`, by `keys`
  } kind = unknown;
  Fact fact;
  bool is_scalar = false;  // a tensor without dimensions
  std::vector<c10::IValue> keys;
  std::vector<Input> parts;

  bool operator==(const Input& other) const;

  // Whether the facts of all tensors in it are known.
  bool is_known() const;
  // Whether all its elements are alike, whichever is chosen and in whatever order they come.
  bool is_alike() const;
};

// What one example tells.
Input read_input(const c10::IValue& value, const c10::TypePtr& type);

Input join(const Input& one, const Input& other);

// TorchScript source of `check(x)`, which raises where a value is not like a known `input`; empty
// if there is nothing to check. `name` is for its message.
std::string check_of(const Input& input, const c10::TypePtr& type, const std::string& name);

}  // namespace jit_amp
