#include "analysis/abstract_value.h"

#include <ATen/core/Dict.h>
#include <ATen/core/List.h>
#include <ATen/core/class_type.h>

#include <algorithm>
#include <bit>

namespace jit_amp {
namespace {

constexpr int kDtypes = static_cast<int>(c10::ScalarType::NumOptions);
static_assert(kDtypes < 64, "DTypes holds a dtype in a bit");

DTypes all_that(bool (*holds)(c10::ScalarType)) {
  DTypes found = DTypes::only(c10::kFloat);
  for (int i = 0; i < kDtypes; ++i) {
    const auto dtype = static_cast<c10::ScalarType>(i);
    if (dtype != c10::ScalarType::Undefined && holds(dtype)) {
      found = found | DTypes::only(dtype);
    }
  }
  return found;
}

bool same_keys(const AbstractValue& one, const AbstractValue& other) {
  return one.keys.size() == other.keys.size() &&
         std::all_of(one.keys.begin(), one.keys.end(), [&](const c10::IValue& key) {
           return std::find(other.keys.begin(), other.keys.end(), key) != other.keys.end();
         });
}

}  // namespace

DTypes DTypes::floating() {
  static const DTypes found =
      all_that([](c10::ScalarType dtype) { return c10::isFloatingType(dtype); });
  return found;
}

DTypes DTypes::eligible() {
  static const DTypes found = all_that(
      [](c10::ScalarType dtype) { return c10::isFloatingType(dtype) && dtype != c10::kDouble; });
  return found;
}

std::optional<c10::ScalarType> DTypes::single() const {
  return std::has_single_bit(bits_)
             ? std::optional(static_cast<c10::ScalarType>(std::countr_zero(bits_)))
             : std::nullopt;
}

std::vector<c10::ScalarType> DTypes::list() const {
  std::vector<c10::ScalarType> found;
  for (int i = 0; i < kDtypes; ++i) {
    if (has(static_cast<c10::ScalarType>(i))) {
      found.push_back(static_cast<c10::ScalarType>(i));
    }
  }
  return found;
}

AbstractValue AbstractValue::element() const {
  if ((kind != list && kind != dict) || parts.empty()) {
    return {};
  }
  AbstractValue joined = parts[0];
  for (const AbstractValue& part : parts) {
    joined = join(joined, part);
  }
  return joined;
}

AbstractValue AbstractValue::at(int64_t position) const {
  if (kind == tuple || (kind == list && is_fixed)) {
    const auto size = static_cast<int64_t>(parts.size());
    const int64_t index = position < 0 ? position + size : position;
    return index >= 0 && index < size ? parts[index] : AbstractValue{};
  }
  return element();
}

AbstractValue AbstractValue::at(const c10::IValue& key) const {
  if (!is_fixed) {
    return element();
  }
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) {
      return parts[i];
    }
  }
  return {};
}

bool AbstractValue::operator==(const AbstractValue& other) const {
  return kind == other.kind && fact == other.fact && maybe_none == other.maybe_none &&
         is_fixed == other.is_fixed && keys == other.keys && parts == other.parts;
}

Fact join(const Fact& one, const Fact& other) {
  return {one.dtypes | other.dtypes, one.device == other.device ? one.device : std::nullopt,
          one.dims == other.dims ? one.dims : Dims::unknown};
}

AbstractValue join(const AbstractValue& one, const AbstractValue& other) {
  if (one.kind == AbstractValue::never || other.kind == AbstractValue::never) {
    return one.kind == AbstractValue::never ? other : one;
  }
  if (one.kind == AbstractValue::none || other.kind == AbstractValue::none) {
    AbstractValue joined = one.kind == AbstractValue::none ? other : one;
    joined.maybe_none |=
        joined.kind != AbstractValue::none && joined.kind != AbstractValue::unknown;
    return joined;
  }
  if (one.kind != other.kind || one.kind == AbstractValue::unknown) {
    return {};
  }
  AbstractValue joined = one;
  joined.maybe_none |= other.maybe_none;
  if (one.kind == AbstractValue::tensor) {
    joined.fact = join(one.fact, other.fact);
    return joined;
  }
  const bool same_length = one.parts.size() == other.parts.size();
  const bool is_container = one.kind == AbstractValue::list || one.kind == AbstractValue::dict;
  if (is_container && !(one.is_fixed && other.is_fixed && same_length && same_keys(one, other))) {
    joined.is_fixed = false;
    joined.keys.clear();
    if (one.parts.empty() || other.parts.empty()) {
      joined.parts = {one.parts.empty() ? other.element() : one.element()};
    } else {
      joined.parts = {join(one.element(), other.element())};
    }
    return joined;
  }
  if (!same_length) {
    return {};
  }
  for (size_t i = 0; i < one.parts.size(); ++i) {
    size_t same = i;
    if (one.kind == AbstractValue::dict) {  // whose keys may come in another order
      same = std::find(other.keys.begin(), other.keys.end(), one.keys[i]) - other.keys.begin();
    }
    joined.parts[i] = join(one.parts[i], other.parts[same]);
  }
  return joined;
}

AbstractValue known_of(const c10::IValue& value) {
  if (value.isNone()) {
    return {.kind = AbstractValue::none};
  }
  if (value.isTensor()) {
    const at::Tensor& tensor = value.toTensor();
    return tensor.defined() ? AbstractValue::of_tensor(
                                  {DTypes::only(tensor.scalar_type()), tensor.device().type(),
                                   tensor.dim() == 0 ? Dims::none : Dims::some})
                            : AbstractValue{};
  }
  AbstractValue known;
  if (value.isTuple()) {
    known.kind = AbstractValue::tuple;
    for (const c10::IValue& part : value.toTupleRef().elements()) {
      known.parts.push_back(known_of(part));
    }
  } else if (value.isList()) {
    known.kind = AbstractValue::list;
    known.is_fixed = true;
    for (const c10::IValue& part : value.toList()) {
      known.parts.push_back(known_of(part));
    }
  } else if (value.isGenericDict()) {
    known.kind = AbstractValue::dict;
    known.is_fixed = true;
    for (const auto& entry : value.toGenericDict()) {
      known.keys.push_back(entry.key());
      known.parts.push_back(known_of(entry.value()));
    }
  } else if (value.isModule()) {
    known.kind = AbstractValue::module;
    known.is_fixed = true;
    const auto& object = value.toObjectRef();
    for (size_t i = 0; i < object.type()->numAttributes(); ++i) {
      known.keys.emplace_back(object.type()->getAttributeName(i));
      known.parts.push_back(known_of(object.getSlot(i)));
    }
  } else if (value.isObject() || value.isFuture() || value.isAwait()) {
    return {};
  } else {
    known.kind = AbstractValue::plain;
  }
  return known;
}

}  // namespace jit_amp
