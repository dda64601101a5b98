#include "core/printable.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <optional>
#include <utility>

namespace jit_amp {
namespace {

// First and last of Unicode's categories Cc (control), Cf (format), Zl and Zp (ends of lines).
constexpr std::pair<uint32_t, uint32_t> kUnseen[] = {
    {0x0, 0x1f},        {0x7f, 0x9f},       {0xad, 0xad},       {0x600, 0x605},
    {0x61c, 0x61c},     {0x6dd, 0x6dd},     {0x70f, 0x70f},     {0x890, 0x891},
    {0x8e2, 0x8e2},     {0x180e, 0x180e},   {0x200b, 0x200f},   {0x2028, 0x202e},
    {0x2060, 0x206f},   {0xfeff, 0xfeff},   {0xfff9, 0xfffb},   {0x110bd, 0x110bd},
    {0x110cd, 0x110cd}, {0x13430, 0x1345f}, {0x1bca0, 0x1bca3}, {0x1d173, 0x1d17a},
    {0xe0000, 0xe0fff}};

bool is_unseen(uint32_t point) {
  return std::any_of(std::begin(kUnseen), std::end(kUnseen), [&](const auto& range) {
    return range.first <= point && point <= range.second;
  });
}

// The code point that begins a text, and how many bytes it has; none where these are not of UTF-8.
std::optional<std::pair<uint32_t, size_t>> first_point(std::string_view text) {
  const auto byte = [&](size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char first = byte(0);
  if (first < 0x80) {
    return std::pair<uint32_t, size_t>{first, 1};
  }
  const size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  constexpr std::array<uint32_t, 5> kLeast{0, 0, 0x80, 0x800, 0x10000};  // of so many bytes
  if (first < 0xc2 || first > 0xf4 || text.size() < length) {
    return std::nullopt;
  }
  uint32_t point = first & (0x7fU >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xc0U) != 0x80) {
      return std::nullopt;
    }
    point = (point << 6U) | (byte(i) & 0x3fU);
  }
  const bool is_surrogate = 0xd800 <= point && point <= 0xdfff;
  if (point < kLeast[length] || point > 0x10ffff || is_surrogate) {
    return std::nullopt;
  }
  return std::pair{point, length};
}

std::string escaped(uint32_t point) {
  std::array<char, 11> text{};
  const char* form = point < 0x100 ? "\\x%02x" : point < 0x10000 ? "\\u%04x" : "\\U%08x";
  std::snprintf(text.data(), text.size(), form, point);
  return text.data();
}

}  // namespace

std::string printable(std::string_view text, bool lines) {
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const auto point = first_point(text);
    const size_t length = point ? point->second : 1;
    const bool stays = lines && (text[0] == '\n' || text[0] == '\t');
    if (point && (stays || !is_unseen(point->first))) {
      made += text.substr(0, length);
    } else {
      made += escaped(point ? point->first : static_cast<unsigned char>(text[0]));
    }
    text.remove_prefix(length);
  }
  return made;
}

bool is_utf8(std::string_view text) {
  while (!text.empty()) {
    const auto point = first_point(text);
    if (!point) {
      return false;
    }
    text.remove_prefix(point->second);
  }
  return true;
}

}  // namespace jit_amp
