// guards: what examples tell of the values that a caller gives, and a check of it.
//
// Of a tensor its dtype, its device, and whether it has dimensions; of a tuple, list or dictionary
// its parts (abstract_value.h). A list has elements or none, and all are alike; a dictionary has
// the keys that it has. Where several examples differ, nothing is known.
//
// An analysis; legalize puts the check into the graph.
#pragma once

#include <ATen/core/ivalue.h>
#include <ATen/core/jit_type.h>

#include <string>

#include "analysis/abstract_value.h"

namespace jit_amp {

// What one example tells, as far as a check can make sure of it.
AbstractValue read_input(const c10::IValue& value, const c10::TypePtr& type);

// What two tell: less than join(AbstractValue, AbstractValue), for a check is of single dtypes.
AbstractValue join_inputs(const AbstractValue& one, const AbstractValue& other);

// TorchScript source of `check(x)`, which raises where a value is not as `input` says; empty if
// there is nothing to check. `name` is for its message, and whether an example told it.
std::string guard_of(const AbstractValue& input, const c10::TypePtr& type, const std::string& name,
                     bool by_example);

// The type as it is written in TorchScript; empty for one that a check cannot take.
std::string annotation_of(const c10::TypePtr& type);

// TorchScript that asks whether a tensor is on such a device.
std::string is_on(const std::string& tensor, c10::DeviceType device);

// What all examples tell of the inputs of a method; nothing of self, its first. Each example is a
// stack of arguments without self.
std::vector<AbstractValue> inputs_of(const torch::jit::Graph& graph,
                                     const std::vector<torch::jit::Stack>& examples);

// The same inputs, of whose dimensions nothing is known.
std::vector<AbstractValue> without_dims(std::vector<AbstractValue> inputs);

}  // namespace jit_amp
