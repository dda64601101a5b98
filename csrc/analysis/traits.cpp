#include "analysis/traits.h"

#include <c10/core/ScalarType.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <array>
#include <sstream>
#include <string_view>
#include <unordered_map>

namespace jit_amp {
namespace {

using namespace torch::jit;

struct Row {
  const char* name;
  InnerAutocast cpu;
  InnerAutocast cuda;
  const char* dtypes;
  const char* dims;
};

constexpr Row kRows[]{
#define OBSERVED(name, cpu, cuda, dtypes, dims) \
  {name, InnerAutocast::cpu, InnerAutocast::cuda, dtypes, dims},
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

const Traits kTraits[]{
#define TRAITS(name, group, memory, strides, fused, profiled) \
  {name, Group::group, Memory::memory, Strides::strides, fused, profiled},
#include "analysis/traits.inc"
#undef TRAITS
};

const Traits kNoTraits{"", Group::none, Memory::by_schema, Strides::unknown, "", false};

const Traits& find_traits(c10::Symbol op, bool in_place) {
  using Index = std::unordered_map<c10::Symbol, const Traits*>;
  static const auto& indices = *new std::array<Index, 2>([] {
    std::array<Index, 2> made;
    for (const Traits& row : kTraits) {
      const std::string name = row.name;
      const auto symbol =
          name.find("::") == std::string::npos ? Symbol::aten(name) : Symbol::fromQualString(name);
      made[0][symbol] = made[1][symbol] = &row;
      made[1][Symbol::fromQualString(symbol.toQualString() + std::string("_"))] = &row;
    }
    return made;
  }());
  const Index& index = indices.at(in_place);
  const auto found = index.find(op);
  return found == index.end() ? kNoTraits : *found->second;
}

// Whether the schema says that the result is none of the operands, and no view of one.
bool is_said_new(const Node* node, size_t result) {
  const FunctionSchema* schema = node->maybeSchema();
  return schema && result < schema->returns().size() && !schema->returns()[result].alias_info();
}

// The type variable that a container's elements are of: `t` of `t[]` and `Dict(str, t)`.
const c10::Type* element_of(const c10::Type& type) {
  if (type.kind() != c10::TypeKind::ListType && type.kind() != c10::TypeKind::DictType) {
    return nullptr;
  }
  const auto& element = type.containedTypes().back();
  return element->kind() == c10::TypeKind::VarType ? element.get() : nullptr;
}

bool mentions(const c10::Type& type, const c10::Type& variable) {
  const auto parts = type.containedTypes();
  return type == variable || std::any_of(parts.begin(), parts.end(), [&](const auto& part) {
           return mentions(*part, variable);
         });
}

}  // namespace

const Observed* observed(const c10::OperatorName& name) {
  const auto found = rows().find(toString(name));
  return found == rows().end() ? nullptr : &found->second;
}

std::optional<std::array<std::string, 4>> observed_row(const std::string& overload) {
  const auto* row = std::find_if(std::begin(kRows), std::end(kRows),
                                 [&](const Row& each) { return overload == each.name; });
  if (row == std::end(kRows)) {
    return std::nullopt;
  }
  const auto name = [](InnerAutocast reach) {
    return reach == InnerAutocast::nothing   ? "nothing"
           : reach == InnerAutocast::promote ? "promote"
                                             : "cast";
  };
  return std::array<std::string, 4>{name(row->cpu), name(row->cuda), row->dtypes, row->dims};
}

const Traits& traits_of(c10::Symbol op) { return find_traits(op, /*in_place=*/false); }

const Traits& traits_of(const Node* node) { return traits_of(node->kind()); }

const Traits& traits_in_place_or_not(const Node* node) {
  return traits_in_place_or_not(node->kind());
}

const Traits& traits_in_place_or_not(c10::Symbol op) { return find_traits(op, /*in_place=*/true); }

bool is_fresh(const Value* result) {
  const Node* node = result->node();
  return traits_of(node).memory == Memory::fresh && is_said_new(node, result->offset());
}

bool may_return_operand(const Node* node) {
  return traits_of(node).memory == Memory::maybe_operand && is_said_new(node, 0);
}

std::optional<std::vector<size_t>> puts_into(const FunctionSchema& schema, size_t container) {
  const auto& formals = schema.arguments();
  const auto* element = element_of(*formals.at(container).type());
  if (!element) {
    return std::nullopt;
  }
  std::vector<size_t> found;
  for (size_t i = 0; i < formals.size(); ++i) {
    if (i != container && mentions(*formals[i].type(), *element)) {
      found.push_back(i);
    }
  }
  return found;
}

bool passes_elements_on(const FunctionSchema& schema, size_t index) {
  return schema.returns().at(index).type()->kind() == c10::TypeKind::ListType &&
         element_of(*schema.returns()[index].type());
}

}  // namespace jit_amp
