#include "analysis/observed.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <sstream>
#include <string_view>
#include <unordered_map>

namespace jit_amp {
namespace {

struct Row {
  const char* name;
  Reach cpu;
  Reach cuda;
  const char* dtypes;
  const char* dims;
};

constexpr Row kRows[]{
#define OBSERVED(name, cpu, cuda, dtypes, dims) {name, Reach::cpu, Reach::cuda, dtypes, dims},
#include "analysis/observed.inc"
#undef OBSERVED
};

std::vector<std::string> fields(const char* text) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, ',');) {
    parts.push_back(part);
  }
  return parts;
}

int8_t dtype_named(const std::string& name) {
  for (int i = 0; i < static_cast<int>(c10::ScalarType::NumOptions); ++i) {
    if (name == c10::toString(static_cast<c10::ScalarType>(i))) {
      return static_cast<int8_t>(i);
    }
  }
  TORCH_CHECK(false, "jit_amp: no dtype is called '", name, "' in observed.inc");
}

// "?", "default", "promote", "promote_tensors", "Bool", "=012"; "~" before it: for floats; "asked|"
// before all: where the call gives a dtype, the result has it.
DtypeRule dtype_rule(std::string text) {
  DtypeRule rule;
  if (constexpr std::string_view kAsked = "asked|"; text.starts_with(kAsked)) {
    rule.heeds_dtype = true;
    text.erase(0, kAsked.size());
  }
  if (text[0] == '~') {
    rule.floats_only = true;
    text.erase(0, 1);
  }
  if (text == "?" || text == "-") {
    return rule;
  }
  if (text[0] == '=') {
    rule.kind = DtypeRule::same;
    for (const char digit : std::string_view(text).substr(1)) {
      rule.of.push_back(digit <= '9' ? digit - '0' : digit - 'a' + 10);
    }
  } else if (text == "promote" || text == "promote_tensors") {
    rule.kind = text == "promote" ? DtypeRule::promote : DtypeRule::promote_tensors;
  } else if (text == "default") {
    rule.kind = DtypeRule::standard;
  } else {
    rule.kind = DtypeRule::fixed;
    rule.dtype = dtype_named(text);
  }
  return rule;
}

// "?", "some", "any", "=0".
DimsRule dims_rule(const std::string& text) {
  DimsRule rule;
  if (text[0] == '=') {
    rule.kind = DimsRule::same;
    rule.of = std::stoul(text.substr(1));
  } else {
    rule.kind = text == "some" ? DimsRule::some : text == "any" ? DimsRule::any : DimsRule::unknown;
  }
  return rule;
}

const std::unordered_map<std::string, Observed>& rows() {
  static const auto& all = *new std::unordered_map<std::string, Observed>([] {
    std::unordered_map<std::string, Observed> made;
    for (const Row& row : kRows) {
      Observed& seen = made[row.name];
      seen.cpu = row.cpu;
      seen.cuda = row.cuda;
      for (const std::string& text : fields(row.dtypes)) {
        seen.dtypes.push_back(dtype_rule(text));
      }
      for (const std::string& text : fields(row.dims)) {
        seen.dims.push_back(dims_rule(text));
      }
    }
    return made;
  }());
  return all;
}

}  // namespace

const Observed* observed(const c10::OperatorName& name) {
  const auto found = rows().find(toString(name));
  return found == rows().end() ? nullptr : &found->second;
}

std::vector<std::string> observed_overloads() {
  std::vector<std::string> names;
  for (const Row& row : kRows) {
    names.emplace_back(row.name);
  }
  return names;
}

}  // namespace jit_amp
