// cast_tensors: a value with the tensors in it cast.
//
// Tensors are cast also in tuples, NamedTuples, lists, the values of dictionaries, and where a
// value may be None. Which ones is asked of each tensor when the graph runs. A list or a dictionary
// is made anew only where something in it is cast, so that it stays the object that it is
// elsewhere. A tensor that is not cast stays the tensor that it is.
//
// Changes source graphs, before their calls are inlined or after.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <functional>
#include <optional>
#include <string>

#include "analysis/abstract_value.h"

namespace jit_amp {

// Tensors of these dtypes are cast to that one.
struct DTypeCast {
  DTypes from;
  c10::ScalarType to;
};

// How a tensor is cast, by what is known of it; none: it stays.
using CastOf = std::function<std::optional<DTypeCast>(const Fact&)>;

// Whether all tensors in values of the type can be cast: not those in objects, in values of type
// Any, and in what tasks will give.
bool can_cast_tensors(const c10::TypePtr& type);

// The value with its tensors cast, at the insertion point; null where there is nothing to cast, or
// what there is cannot be. What is inserted has "<jit_amp NAME>" for its file, which the files of
// frozen modules keep.
torch::jit::Value* cast_tensors(torch::jit::Value* value, const AbstractValue& known,
                                const CastOf& cast_of, const std::string& name);

}  // namespace jit_amp
