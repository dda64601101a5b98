#include "analysis/guards.h"

#include <c10/core/ScalarType.h>

#include <algorithm>
#include <cctype>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using c10::TypeKind;

// A key as it is written in TorchScript.
std::string literal(const c10::IValue& key) {
  return key.isString() ? "'" + key.toStringRef() + "'" : c10::str(key.toInt());
}

bool has_literal(const c10::IValue& key) {
  if (!key.isString()) {
    return key.isInt();
  }
  const std::string& text = key.toStringRef();
  return std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return std::isalnum(c) || c == '_' || c == '-' || c == '.' || c == ' ' || c == '/';
  });
}

// Dtypes by their Python names, in the order of c10::ScalarType.
constexpr const char* kDtypeNames[] = {"uint8",     "int8",      "int16",      "int32",
                                       "int64",     "float16",   "float32",    "float64",
                                       "complex32", "complex64", "complex128", "bool",
                                       "quantized", "quantized", "quantized",  "bfloat16"};

std::string name_of_dtype(c10::ScalarType dtype) {
  const auto number = static_cast<size_t>(dtype);
  return number < std::size(kDtypeNames) ? kDtypeNames[number] : c10::toString(dtype);
}

// An expression in TorchScript: what a tensor is, to be told where it is another than expected.
std::string told(const std::string& tensor) {
  std::string names;
  for (const char* name : kDtypeNames) {
    names += c10::str("\"", name, "\", ");
  }
  return c10::str("[", names, "\"another dtype\"][min(", tensor, ".dtype, ", std::size(kDtypeNames),
                  ")] + \" on \" + (", tensor, ".device.type if ", tensor,
                  ".dtype != ", static_cast<int>(c10::ScalarType::Undefined),
                  " else \"no device\") + (\", without dimensions\" if ", tensor,
                  ".dim() == 0 else \"\")");
}

class Writer {
 public:
  explicit Writer(bool by_example) : by_example_(by_example) {}

  std::string text;

  void check(const AbstractValue& input, const c10::TypePtr& type, const std::string& value,
             const std::string& name, size_t depth) {
    if (input.kind == AbstractValue::plain || input.kind == AbstractValue::unknown) {
      return;
    }
    if (const auto optional = type->cast<c10::OptionalType>()) {
      const bool is_none = input.kind == AbstractValue::none;
      const std::string given = fresh();
      line(depth, c10::str(given, " = ", value));
      if (is_none) {
        require(depth, given + " is None", name, "None", "\"something\"");
      } else {
        require(depth, given + " is not None", name, "something", "\"None\"");
        check(input, optional->getElementType(), given, name, depth);
      }
      return;
    }
    const auto types = type->containedTypes();
    switch (input.kind) {
      case AbstractValue::tensor:
        check_tensor(input.fact, value, name, depth);
        return;
      case AbstractValue::tuple:
        for (size_t i = 0; i < types.size(); ++i) {
          check(input.parts[i], types[i], c10::str(value, "[", i, "]"), c10::str(name, "[", i, "]"),
                depth);
        }
        return;
      case AbstractValue::list:
        if (input.parts.empty()) {
          require(depth, c10::str("len(", value, ") == 0"), name, "an empty list",
                  c10::str("\"one of \" + str(len(", value, "))"));
        } else {
          require(depth, c10::str("len(", value, ") != 0"), name, "a list with elements",
                  "\"an empty one\"");
          check_each(input.parts[0], types[0], value, name, depth);
        }
        return;
      case AbstractValue::dict:
        check_dict(input, types, value, name, depth);
        return;
      default:
        return;
    }
  }

 private:
  void check_dict(const AbstractValue& input, at::ArrayRef<c10::TypePtr> types,
                  const std::string& value, const std::string& name, size_t depth) {
    std::vector<std::string> keys;
    for (const c10::IValue& key : input.keys) {
      keys.push_back(literal(key));
    }
    const std::string expected =
        keys.empty() ? "an empty dictionary"
                     : c10::str("a dictionary with the keys ", c10::Join(", ", keys));
    const std::string came = c10::str("\"one with \" + str(list(", value, ".keys()))");
    std::string condition = c10::str("len(", value, ") == ", keys.size());
    for (const std::string& key : keys) {
      condition += c10::str(" and ", key, " in ", value);
    }
    require(depth, condition, name, expected, came);
    for (size_t i = 0; i < keys.size(); ++i) {
      check(input.parts[i], types[1], c10::str(value, "[", keys[i], "]"),
            c10::str(name, "[", keys[i], "]"), depth);
    }
  }

  void check_tensor(const Fact& fact, const std::string& value, const std::string& name,
                    size_t depth) {
    std::vector<std::string> conditions;
    std::vector<std::string> dtypes;
    std::vector<std::string> names;
    for (const c10::ScalarType dtype :
         fact.dtypes.is_any() ? std::vector<c10::ScalarType>() : fact.dtypes.list()) {
      dtypes.push_back(c10::str(value, ".dtype == ", static_cast<int>(dtype)));
      names.push_back(name_of_dtype(dtype));
    }
    if (!dtypes.empty()) {
      conditions.push_back(c10::str("(", c10::Join(" or ", dtypes), ")"));
    }
    if (fact.device) {
      conditions.push_back(is_on(value, *fact.device));
    }
    if (fact.dims != Dims::unknown) {
      conditions.push_back(c10::str(value, ".dim() ", fact.dims == Dims::none ? "==" : "!=", " 0"));
    }
    if (conditions.empty()) {
      return;
    }
    require(depth, c10::Join(" and ", conditions), name,
            c10::str(names.empty() ? "a tensor" : c10::Join(" or ", names),
                     fact.device ? c10::str(" on ", c10::DeviceTypeName(*fact.device, true)) : "",
                     fact.dims == Dims::none   ? ", without dimensions"
                     : fact.dims == Dims::some ? ", with dimensions"
                                               : ""),
            told(value));
  }

  void check_each(const AbstractValue& part, const c10::TypePtr& type, const std::string& value,
                  const std::string& name, size_t depth) {
    const std::string element = fresh();
    Writer each(by_example_);
    each.count_ = count_;
    each.check(part, type, element, name + "[...]", depth + 1);
    count_ = each.count_;
    if (!each.text.empty()) {
      line(depth, c10::str("for ", element, " in ", value, ":"));
      text += each.text;
    }
  }

  // `came` is an expression in TorchScript: what is there instead of what was expected.
  void require(size_t depth, const std::string& condition, const std::string& name,
               const std::string& expected, const std::string& came) {
    const std::string advice =
        by_example_ ? "This module was frozen by jit_amp with an example of that kind: freeze it "
                      "with one of the other kind too, or with none"
                    : "This module was frozen by jit_amp, and its weights are of that kind";
    line(depth, c10::str("assert ", condition, ", \"jit_amp: `", escaped(name), "`: expected ",
                         escaped(expected), ", got \" + ", came, " + \"\\n", advice, "\""));
  }

  static std::string escaped(const std::string& text) {
    std::string result;
    for (const char c : text) {
      result += c == '"' || c == '\\' ? std::string("\\") + c : std::string(1, c);
    }
    return result;
  }

  std::string fresh() { return c10::str("v", count_++); }

  void line(size_t depth, const std::string& content) {
    text += std::string(4 * depth, ' ') + content + "\n";
  }

  bool by_example_;
  size_t count_ = 0;
};

}  // namespace

std::string annotation_of(const c10::TypePtr& type) {
  std::vector<std::string> parts;
  for (const auto& part : type->containedTypes()) {
    parts.push_back(annotation_of(part));
    const auto tuple = part->cast<c10::TupleType>();
    if (parts.back().empty() || (tuple && tuple->name())) {
      return "";
    }
  }
  switch (type->kind()) {
    case TypeKind::TensorType:
      return "Tensor";
    case TypeKind::OptionalType:
      return c10::str("Optional[", parts[0], "]");
    case TypeKind::ListType:
      return c10::str("List[", parts[0], "]");
    case TypeKind::DictType:
      return c10::str("Dict[", parts[0], ", ", parts[1], "]");
    case TypeKind::TupleType:
      return parts.empty() ? "" : c10::str("Tuple[", c10::Join(", ", parts), "]");
    default:
      return is_plain(type) && type->kind() != TypeKind::NoneType &&
                     type->kind() != TypeKind::NumberType
                 ? type->annotation_str()
                 : "";
  }
}

AbstractValue read_input(const c10::IValue& value, const c10::TypePtr& type) {
  if (!mentions_tensors(type)) {
    const auto optional = type->cast<c10::OptionalType>();
    const bool is_fixed = !optional && type->kind() != TypeKind::NumberType;
    return {.kind = is_fixed && !type->cast<c10::ClassType>() ? AbstractValue::plain
                                                              : AbstractValue::unknown};
  }
  if (annotation_of(type).empty()) {
    return {};
  }
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return value.isNone() ? AbstractValue{.kind = AbstractValue::none}
                          : read_input(value, optional->getElementType());
  }
  if (is_tensor(type)) {
    return known_of(value);
  }
  AbstractValue known;
  if (const auto tuple = type->cast<c10::TupleType>()) {
    known.kind = AbstractValue::tuple;
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      known.parts.push_back(read_input(elements[i], tuple->elements()[i]));
    }
  } else if (const auto list = type->cast<c10::ListType>()) {
    known.kind = AbstractValue::list;
    for (const c10::IValue& element : value.toList()) {
      const AbstractValue part = read_input(element, list->getElementType());
      if (known.parts.empty()) {
        known.parts.push_back(part);
      } else {
        known.parts[0] = join_inputs(known.parts[0], part);
      }
    }
    known.is_fixed = known.parts.empty();
  } else if (const auto dict = type->cast<c10::DictType>()) {
    known.kind = AbstractValue::dict;
    known.is_fixed = true;
    for (const auto& entry : value.toGenericDict()) {
      if (!has_literal(entry.key())) {
        return {};
      }
      known.keys.push_back(entry.key());
      known.parts.push_back(read_input(entry.value(), dict->getValueType()));
    }
  }
  return known;
}

AbstractValue join_inputs(const AbstractValue& one, const AbstractValue& other) {
  if (one == other) {
    return one;
  }
  AbstractValue joined = join(one, other);
  if (joined.maybe_none || one.parts.size() != other.parts.size() ||
      one.keys.size() != joined.keys.size()) {
    return {};
  }
  if (joined.kind == AbstractValue::tensor && !joined.fact.dtype()) {
    joined.fact = {};
  }
  for (AbstractValue& part : joined.parts) {
    if (part.maybe_none || (part.kind == AbstractValue::tensor && !part.fact.dtype())) {
      part = {};
    }
  }
  return joined;
}

std::string is_on(const std::string& tensor, c10::DeviceType device) {
  const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
  const bool has_question = device == c10::kCPU || device == c10::kCUDA;
  return has_question ? c10::str(tensor, ".is_", name)
                      : c10::str("(", tensor, ".device.type == '", name, "')");
}

std::string guard_of(const AbstractValue& input, const c10::TypePtr& type, const std::string& name,
                     bool by_example) {
  Writer writer(by_example);
  writer.check(input, type, "x", name, 1);
  return writer.text.empty() ? ""
                             : c10::str("def check(x: ", annotation_of(type), "):\n", writer.text);
}

std::vector<AbstractValue> inputs_of(const torch::jit::Graph& graph,
                                     const std::vector<torch::jit::Stack>& examples) {
  std::vector<AbstractValue> inputs;
  for (size_t i = 0; !examples.empty() && i < graph.inputs().size(); ++i) {
    if (i == 0) {  // self
      inputs.emplace_back();
      continue;
    }
    const auto& type = graph.inputs()[i]->type();
    AbstractValue known = read_input(examples[0][i - 1], type);
    for (const torch::jit::Stack& example : examples) {
      known = join_inputs(known, read_input(example[i - 1], type));
    }
    inputs.push_back(std::move(known));
  }
  return inputs;
}

std::vector<AbstractValue> without_dims(std::vector<AbstractValue> inputs) {
  for (AbstractValue& input : inputs) {
    if (input.kind != AbstractValue::module) {  // constants are what they are
      input.fact.dims = Dims::unknown;
      input.parts = without_dims(std::move(input.parts));
    }
  }
  return inputs;
}

}  // namespace jit_amp
