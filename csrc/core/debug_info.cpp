#include "core/debug_info.h"

#include <ATen/core/ivalue.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/serialization/pickle.h>
#include <torch/csrc/jit/serialization/source_range_serialization_impl.h>

#include <algorithm>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/forks.h"
#include "core/printable.h"
#include "core/private_members.h"

namespace jit_amp {

using torch::jit::ConcreteSourceRangeUnpickler;
using torch::jit::Source;
using torch::jit::SourceRange;
using torch::jit::SourceRangeUnpickler;

struct Information {
  using Member = std::shared_ptr<SourceRangeUnpickler> Source::*;
  friend Member open(Information);
};
struct Data {
  using Member = at::DataPtr ConcreteSourceRangeUnpickler::*;
  friend Member open(Data);
};
struct Size {
  using Member = size_t ConcreteSourceRangeUnpickler::*;
  friend Member open(Size);
};
template struct Opened<Information, &Source::gen_ranges_>;
template struct Opened<Data, &ConcreteSourceRangeUnpickler::data>;
template struct Opened<Size, &ConcreteSourceRangeUnpickler::size>;

namespace {

using c10::IValue;

// The elements of a tuple of at least so many; none where it is something else.
std::vector<IValue> elements_of(const IValue& value, size_t least) {
  if (!value.isTuple() || value.toTupleRef().elements().size() < least) {
    return {};
  }
  const auto& elements = value.toTupleRef().elements();
  return std::vector<IValue>(elements.begin(), elements.end());
}

bool is_text(const IValue& value) { return value.isString() && is_utf8(value.toStringRef()); }

// The length of the text that a range is in; none where it is no source.
// torch/csrc/jit/serialization/source_range_serialization.cpp has the form.
std::optional<size_t> length_of(const IValue& source, const std::vector<IValue>& texts) {
  constexpr int64_t kMostLines = std::numeric_limits<int32_t>::max();
  const auto parts = elements_of(source, 3);
  if (parts.size() != 3 || !parts[2].isInt() || parts[2].toInt() < 0 ||
      parts[2].toInt() > kMostLines) {
    return std::nullopt;
  }
  if (texts.empty()) {
    const bool is_it = is_text(parts[0]) && (parts[1].isNone() || is_text(parts[1]));
    return is_it ? std::optional(parts[0].toStringRef().size()) : std::nullopt;
  }
  const auto is_there = [&](int64_t at) {
    return 0 <= at && at < static_cast<int64_t>(texts.size());
  };
  if (!parts[0].isIntList() || !parts[1].isInt() || !is_there(parts[1].toInt())) {
    return std::nullopt;
  }
  size_t length = 0;
  for (const int64_t at : parts[0].toIntVector()) {
    if (!is_there(at)) {
      return std::nullopt;
    }
    length += texts[static_cast<size_t>(at)].toStringRef().size();
  }
  return length;
}

bool is_record(const IValue& record, const std::vector<IValue>& texts) {
  const auto parts = elements_of(record, 2);
  const auto range = parts.empty() ? parts : elements_of(parts[1], 3);
  if (range.size() != 3 || !parts[0].isInt() || !range[1].isInt() || !range[2].isInt()) {
    return false;
  }
  const auto length = length_of(range[0], texts);
  return length && 0 <= range[1].toInt() && range[1].toInt() <= range[2].toInt() &&
         range[2].toInt() <= static_cast<int64_t>(*length);
}

bool is_sound(const IValue& all) {
  auto lines = elements_of(all, 1);
  if (lines.empty()) {
    return false;
  }
  std::vector<IValue> texts;
  if (lines[0].isString() && lines[0].toStringRef() == torch::jit::kFormatWithStringTable) {
    if (lines.size() < 3 || !lines[1].isTuple() || !lines[2].isTuple()) {
      return false;
    }
    texts = elements_of(lines[1], 0);
    lines = elements_of(lines[2], 0);
  }
  return std::all_of(texts.begin(), texts.end(), is_text) &&
         std::all_of(lines.begin(), lines.end(),
                     [&](const IValue& record) { return is_record(record, texts); });
}

bool is_sound(const SourceRangeUnpickler& information) {
  const auto& known = static_cast<const ConcreteSourceRangeUnpickler&>(information);  // no other is
  const auto* data = static_cast<const char*>((known.*open(Data())).get());
  try {
    return is_sound(torch::jit::unpickle(data, known.*open(Size())));
  } catch (const std::exception&) {
    return false;
  }
}

// Whether it was found sound. It is read once, and may be gone when another has its address.
bool is_known_sound(const std::shared_ptr<SourceRangeUnpickler>& information) {
  using Known = std::map<std::weak_ptr<SourceRangeUnpickler>, bool,
                         std::owner_less<std::weak_ptr<SourceRangeUnpickler>>>;
  static auto& known = *new Known;
  static auto& lock = *new Lock;
  {
    const std::lock_guard held(lock);
    if (const auto found = known.find(information); found != known.end()) {
      return found->second;
    }
  }
  const bool sound = is_sound(*information);
  const std::lock_guard held(lock);
  std::erase_if(known, [](const auto& each) { return each.first.expired(); });
  known[information] = sound;
  return sound;
}

}  // namespace

std::optional<SourceRange> before_saving(const SourceRange& range) {
  if (!range.source()) {
    return std::nullopt;
  }
  auto& information = *range.source().*open(Information());
  if (!information) {
    return std::nullopt;
  }
  if (!is_known_sound(information)) {
    information = nullptr;
    return std::nullopt;
  }
  return range.findSourceRangeThatGenerated();
}

SourceRange as_written(const SourceRange& range) { return before_saving(range).value_or(range); }

}  // namespace jit_amp
