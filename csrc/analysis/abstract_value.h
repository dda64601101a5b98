// abstract_value: what is known of a value when compiling.
//
// A small lattice. Of a tensor: which dtypes it may have, its device, and whether it has
// dimensions, on which type promotion rests. Of a tuple, list or dictionary: what is known of its
// parts. "Unknown" is the top of the lattice and the default: it says nothing.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/Device.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <vector>

namespace jit_amp {

// A set of dtypes.
class DTypes {
 public:
  static DTypes any() { return DTypes(~uint64_t{0}); }
  static DTypes only(c10::ScalarType dtype) { return DTypes(bit(dtype)); }
  static DTypes floating();
  static DTypes eligible();  // what autocast casts: floating point, but for float64

  bool has(c10::ScalarType dtype) const { return bits_ & bit(dtype); }
  bool within(DTypes other) const { return !(bits_ & ~other.bits_); }
  bool is_any() const { return bits_ == ~uint64_t{0}; }
  // The dtype, where it is the only one.
  std::optional<c10::ScalarType> single() const;
  std::vector<c10::ScalarType> list() const;

  DTypes operator|(DTypes other) const { return DTypes(bits_ | other.bits_); }
  DTypes operator&(DTypes other) const { return DTypes(bits_ & other.bits_); }
  bool is_empty() const { return !bits_; }
  bool operator==(const DTypes&) const = default;

 private:
  explicit DTypes(uint64_t bits) : bits_(bits) {}
  static uint64_t bit(c10::ScalarType dtype) { return uint64_t{1} << static_cast<int>(dtype); }
  uint64_t bits_;
};

enum class Dims : uint8_t { unknown, none, some };

// What is known of a tensor.
struct Fact {
  DTypes dtypes = DTypes::any();
  std::optional<c10::DeviceType> device;
  Dims dims = Dims::unknown;

  std::optional<c10::ScalarType> dtype() const { return dtypes.single(); }
  bool operator==(const Fact&) const = default;
};

struct AbstractValue {
  enum Kind {
    unknown,
    never,   // no value: the graph does not get here
    plain,   // no tensor is in it
    none,    // None
    tensor,  // `fact`
    tuple,   // `parts`, by position
    list,    // `parts`, by position if it is fixed, else one for all elements
    dict,    // `parts`, by `keys` if it is fixed, else one for all values
    module   // `parts`, its attributes, by `keys`
  } kind = unknown;
  Fact fact = {};
  bool maybe_none = false;  // it may be None instead
  bool is_fixed = false;    // a list whose length and order, a dictionary whose keys are known
  std::vector<c10::IValue> keys = {};
  std::vector<AbstractValue> parts = {};

  static AbstractValue of_tensor(const Fact& fact) { return {.kind = tensor, .fact = fact}; }
  // A list of unknown length, or a dictionary with unknown keys.
  static AbstractValue all_of(Kind kind, const AbstractValue& element) {
    return {.kind = kind, .parts = {element}};
  }

  // What holds of each element of a list or value of a dictionary, whichever it is.
  AbstractValue element() const;
  // The part under a constant position or key.
  AbstractValue at(int64_t position) const;
  AbstractValue at(const c10::IValue& key) const;

  bool operator==(const AbstractValue&) const;
};

Fact join(const Fact& one, const Fact& other);

// What holds where either holds.
AbstractValue join(const AbstractValue& one, const AbstractValue& other);

// All there is to know of a value.
AbstractValue known_of(const c10::IValue& value);

}  // namespace jit_amp
