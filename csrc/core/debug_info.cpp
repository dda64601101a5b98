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
#include <string_view>
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

// What PyTorch writes there, read as far as its own reader has to be kept from it: numbers of a
// memo that would take all memory, tuples in tuples that would take all of the stack, and calls.
class Pickle {
 public:
  explicit Pickle(std::string_view data) : rest_(data), most_(data.size()) {}

  bool is_plain() {
    while (!rest_.empty()) {
      const char code = rest_[0];
      rest_.remove_prefix(1);
      if (code == '.') {
        return true;
      }
      if (!read(code) || (!depths_.empty() && depths_.back() > kDeepest)) {
        return false;
      }
    }
    return false;
  }

 private:
  static constexpr int kDeepest = 8;  // five are written

  bool read(char code) {
    switch (code) {
      case '\x80':  // PROTO
        return skip(1);
      case 'X':  // BINUNICODE
        return push(0) && skip(number(4));
      case 'K':
        return push(0) && skip(1);
      case 'M':
        return push(0) && skip(2);
      case 'J':
        return push(0) && skip(4);
      case '\x8a':  // LONG1
        return push(0) && skip(number(1));
      case 'N':
      case ')':
      case ']':
        return push(0);
      case 'c':
        return push(0) && take("torch.jit._pickle\nbuild_intlist\n");
      case 'q':
        return put(number(1));
      case 'r':
        return put(number(4));
      case 'h':
        return get(number(1));
      case 'j':
        return get(number(4));
      case '(':
        marks_.push_back(depths_.size());
        return true;
      case 't':
        return !marks_.empty() && join(marked(), 1);
      case 'e':  // APPENDS: to what is below
        return !marks_.empty() && join(marked() + 1, 0);
      case '\x85':
        return join(1, 1);
      case '\x86':
      case 'R':
        return join(2, code == 'R' ? 0 : 1);
      case '\x87':
        return join(3, 1);
      default:
        return false;
    }
  }

  size_t number(size_t bytes) {
    size_t value = 0;
    for (size_t i = 0; i < bytes && i < rest_.size(); ++i) {
      value |= static_cast<size_t>(static_cast<unsigned char>(rest_[i])) << (8 * i);
    }
    return skip(bytes) ? value : most_ + 1;
  }

  bool skip(size_t bytes) {
    if (bytes > rest_.size()) {
      return false;
    }
    rest_.remove_prefix(bytes);
    return true;
  }

  bool take(std::string_view text) {
    return rest_.substr(0, text.size()) == text && skip(text.size());
  }

  bool push(int depth) {
    depths_.push_back(depth);
    return true;
  }

  size_t marked() {
    const size_t count = depths_.size() - std::min(marks_.back(), depths_.size());
    marks_.pop_back();
    return count;
  }

  // The last values become one, deeper than the deepest of them.
  bool join(size_t count, int deeper) {
    if (count > depths_.size()) {
      return false;
    }
    const auto first = depths_.end() - static_cast<std::ptrdiff_t>(count);
    const int depth = count ? *std::max_element(first, depths_.end()) : 0;
    depths_.erase(first, depths_.end());
    return push(depth + deeper);
  }

  bool put(size_t id) {
    if (id > most_ || depths_.empty()) {
      return false;
    }
    memo_[id] = depths_.back();
    return true;
  }

  bool get(size_t id) {
    const auto found = memo_.find(id);
    return found != memo_.end() && push(found->second);
  }

  std::string_view rest_;
  size_t most_;              // no memo has more values than a pickle has bytes
  std::vector<int> depths_;  // of tuples in the values on its stack
  std::vector<size_t> marks_;
  std::map<size_t, int> memo_;
};

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
std::optional<size_t> text_length(const IValue& source, const std::vector<IValue>& texts) {
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
  bool is_last = false;  // which alone may be empty: PyTorch fails where a middle one is
  for (const int64_t at : parts[0].toIntVector()) {
    if (!is_there(at) || is_last) {
      return std::nullopt;
    }
    const size_t added = texts[static_cast<size_t>(at)].toStringRef().size();
    is_last = added == 0;
    length += added;
  }
  return length;
}

bool is_record(const IValue& record, const std::vector<IValue>& texts) {
  const auto parts = elements_of(record, 2);
  const auto range = parts.empty() ? parts : elements_of(parts[1], 3);
  if (range.size() != 3 || !parts[0].isInt() || !range[1].isInt() || !range[2].isInt()) {
    return false;
  }
  const auto length = text_length(range[0], texts);
  // What nobody wrote is the first letter of an empty text (fakeRange in PyTorch's frontend).
  return length && 0 <= range[1].toInt() && range[1].toInt() <= range[2].toInt() &&
         range[2].toInt() <= std::max<int64_t>(static_cast<int64_t>(*length), 1);
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
  const size_t size = known.*open(Size());
  try {
    return Pickle({data, size}).is_plain() && is_sound(torch::jit::unpickle(data, size));
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
  if (is_known_sound(information)) {
    try {
      return range.findSourceRangeThatGenerated();
    } catch (const std::exception&) {  // PyTorch wants more of it than we know
    }
  }
  information = nullptr;
  return std::nullopt;
}

SourceRange as_written(const SourceRange& range) { return before_saving(range).value_or(range); }

}  // namespace jit_amp
