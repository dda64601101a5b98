#include "analysis/inputs.h"

#include <algorithm>
#include <cctype>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using c10::TypeKind;

bool is_tensor(const c10::TypePtr& type) { return type->kind() == TypeKind::TensorType; }

// The type as it is written in TorchScript; empty for one that a check cannot take.
std::string spelled(const c10::TypePtr& type) {
  std::vector<std::string> parts;
  for (const auto& part : type->containedTypes()) {
    parts.push_back(spelled(part));
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

class Writer {
 public:
  explicit Writer(bool by_example) : by_example_(by_example) {}

  std::string text;

  void check(const Known& input, const c10::TypePtr& type, const std::string& value,
             const std::string& name, size_t depth) {
    if (input.kind == Known::plain || input.kind == Known::unknown) {
      return;
    }
    if (const auto optional = type->cast<c10::OptionalType>()) {
      const bool is_none = input.kind == Known::none;
      const std::string given = fresh();
      line(depth, c10::str(given, " = ", value));
      require(depth, c10::str(given, is_none ? " is None" : " is not None"), name,
              is_none ? "None" : "given");
      if (!is_none) {
        check(input, optional->getElementType(), given, name, depth);
      }
      return;
    }
    const auto types = type->containedTypes();
    switch (input.kind) {
      case Known::tensor:
        check_tensor(input.fact, value, name, depth);
        return;
      case Known::tuple:
        for (size_t i = 0; i < types.size(); ++i) {
          check(input.parts[i], types[i], c10::str(value, "[", i, "]"), c10::str(name, "[", i, "]"),
                depth);
        }
        return;
      case Known::list:
        require(depth,
                c10::str("(len(", value, ") == 0) == ", input.parts.empty() ? "True" : "False"),
                name, input.parts.empty() ? "empty" : "not empty");
        if (!input.parts.empty()) {
          check_each(input.parts[0], types[0], value, name, depth);
        }
        return;
      case Known::dict:
        require(depth, c10::str("len(", value, ") == ", input.keys.size()), name,
                c10::str("a dictionary of ", input.keys.size()));
        for (size_t i = 0; i < input.keys.size(); ++i) {
          const std::string key = literal(input.keys[i]);
          require(depth, c10::str(key, " in ", value), name, c10::str("with a key ", key));
          check(input.parts[i], types[1], c10::str(value, "[", key, "]"),
                c10::str(name, "[", key, "]"), depth);
        }
        return;
      default:
        return;
    }
  }

 private:
  void check_tensor(const Fact& fact, const std::string& value, const std::string& name,
                    size_t depth) {
    std::vector<std::string> conditions;
    std::vector<std::string> dtypes;
    std::vector<std::string> names;
    for (const c10::ScalarType dtype :
         fact.dtypes.is_any() ? std::vector<c10::ScalarType>() : fact.dtypes.list()) {
      dtypes.push_back(c10::str("(", value, ".dtype == ", static_cast<int>(dtype), ")"));
      names.emplace_back(c10::toString(dtype));
    }
    if (!dtypes.empty()) {
      conditions.push_back(c10::str("(", c10::Join(" | ", dtypes), ")"));
    }
    if (fact.device) {
      const std::string device = c10::DeviceTypeName(*fact.device, true);
      const bool has_question = *fact.device == c10::kCPU || *fact.device == c10::kCUDA;
      conditions.push_back(has_question ? c10::str(value, ".is_", device)
                                        : c10::str("(", value, ".device.type == '", device, "')"));
    }
    if (fact.dims != Dims::unknown) {
      conditions.push_back(
          c10::str("(", value, fact.dims == Dims::none ? ".dim() == 0)" : ".dim() != 0)"));
    }
    if (conditions.empty()) {
      return;
    }
    require(depth, c10::Join(" & ", conditions), name,
            c10::str(names.empty() ? "a tensor" : c10::Join(" or ", names),
                     fact.device ? c10::str(" on ", c10::DeviceTypeName(*fact.device, true)) : "",
                     fact.dims == Dims::none ? ", without dimensions" : ""));
  }

  void check_each(const Known& part, const c10::TypePtr& type, const std::string& value,
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

  void require(size_t depth, const std::string& condition, const std::string& name,
               const std::string& was) {
    const std::string message =
        by_example_
            ? c10::str("this module was frozen by jit_amp with an example whose `", name, "` is ",
                       was, ": freeze it with an example of the other kind too, or with none")
            : c10::str("`", name, "` has to be ", was,
                       ", as the weights are: this module was frozen by jit_amp");
    line(depth, c10::str("assert ", condition, ", \"", message, "\""));
  }

  std::string fresh() { return c10::str("v", count_++); }

  void line(size_t depth, const std::string& content) {
    text += std::string(4 * depth, ' ') + content + "\n";
  }

  bool by_example_;
  size_t count_ = 0;
};

bool can_hold_tensor(const c10::TypePtr& type) {
  const auto types = type->containedTypes();
  return type->kind() == TypeKind::TensorType ||
         std::any_of(types.begin(), types.end(), [](const auto& t) { return can_hold_tensor(t); });
}

}  // namespace

Known read_input(const c10::IValue& value, const c10::TypePtr& type) {
  if (!can_hold_tensor(type)) {
    const auto optional = type->cast<c10::OptionalType>();
    const bool is_fixed = !optional && type->kind() != TypeKind::NumberType;
    return {.kind = is_fixed && !type->cast<c10::ClassType>() ? Known::plain : Known::unknown};
  }
  if (spelled(type).empty()) {
    return {};
  }
  if (const auto optional = type->cast<c10::OptionalType>()) {
    return value.isNone() ? Known{.kind = Known::none}
                          : read_input(value, optional->getElementType());
  }
  if (is_tensor(type)) {
    return known_of(value);
  }
  Known known;
  if (const auto tuple = type->cast<c10::TupleType>()) {
    known.kind = Known::tuple;
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      known.parts.push_back(read_input(elements[i], tuple->elements()[i]));
    }
  } else if (const auto list = type->cast<c10::ListType>()) {
    known.kind = Known::list;
    for (const c10::IValue& element : value.toList()) {
      const Known part = read_input(element, list->getElementType());
      if (known.parts.empty()) {
        known.parts.push_back(part);
      } else {
        known.parts[0] = join_inputs(known.parts[0], part);
      }
    }
    known.is_fixed = known.parts.empty();
  } else if (const auto dict = type->cast<c10::DictType>()) {
    known.kind = Known::dict;
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

Known join_inputs(const Known& one, const Known& other) {
  if (one == other) {
    return one;
  }
  Known joined = join(one, other);
  if (joined.maybe_none || one.parts.size() != other.parts.size() ||
      one.keys.size() != joined.keys.size()) {
    return {};
  }
  if (joined.kind == Known::tensor && !joined.fact.dtype()) {
    joined.fact = {};
  }
  for (Known& part : joined.parts) {
    if (part.maybe_none || (part.kind == Known::tensor && !part.fact.dtype())) {
      part = {};
    }
  }
  return joined;
}

std::string check_of(const Known& input, const c10::TypePtr& type, const std::string& name,
                     bool by_example) {
  Writer writer(by_example);
  writer.check(input, type, "x", name, 1);
  return writer.text.empty() ? "" : c10::str("def check(x: ", spelled(type), "):\n", writer.text);
}

std::vector<Known> inputs_of(const torch::jit::Graph& graph,
                             const std::vector<torch::jit::Stack>& examples) {
  std::vector<Known> inputs;
  for (size_t i = 0; !examples.empty() && i < graph.inputs().size(); ++i) {
    if (i == 0) {  // self
      inputs.emplace_back();
      continue;
    }
    const auto& type = graph.inputs()[i]->type();
    Known known = read_input(examples[0][i - 1], type);
    for (const torch::jit::Stack& example : examples) {
      known = join_inputs(known, read_input(example[i - 1], type));
    }
    inputs.push_back(std::move(known));
  }
  return inputs;
}

}  // namespace jit_amp
