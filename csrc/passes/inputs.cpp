#include "passes/inputs.h"

#include <algorithm>
#include <cctype>

#include "passes/subgraphs.h"

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
  std::string text;

  void check(const Input& input, const c10::TypePtr& type, const std::string& value,
             const std::string& name, size_t depth) {
    if (input.kind == Input::plain) {
      return;
    }
    if (const auto optional = type->cast<c10::OptionalType>()) {
      const bool is_none = input.kind == Input::none;
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
      case Input::tensor:
        require(
            depth,
            c10::str("(", value, ".dtype == ", static_cast<int>(*input.fact.dtype), ") & (", value,
                     ".is_cuda == ", *input.fact.device == c10::DeviceType::CUDA ? "True" : "False",
                     ") & ((", value, ".dim() == 0) == ", input.is_scalar ? "True" : "False", ")"),
            name,
            c10::str(*input.fact.dtype, " on ", c10::DeviceTypeName(*input.fact.device, true),
                     input.is_scalar ? ", without dimensions" : ""));
        return;
      case Input::tuple:
        for (size_t i = 0; i < types.size(); ++i) {
          check(input.parts[i], types[i], c10::str(value, "[", i, "]"), c10::str(name, "[", i, "]"),
                depth);
        }
        return;
      case Input::list:
        require(depth,
                c10::str("(len(", value, ") == 0) == ", input.parts.empty() ? "True" : "False"),
                name, input.parts.empty() ? "empty" : "not empty");
        if (!input.parts.empty()) {
          check_each(input.parts[0], types[0], value, name, depth);
        }
        return;
      case Input::dict:
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
  void check_each(const Input& part, const c10::TypePtr& type, const std::string& value,
                  const std::string& name, size_t depth) {
    const std::string element = fresh();
    Writer each;
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
    line(depth, c10::str("assert ", condition,
                         ", \"this module was frozen by jit_amp with an example "
                         "whose `",
                         name, "` is ", was,
                         ": freeze it with an example of the other kind too, or with none\""));
  }

  std::string fresh() { return c10::str("v", count_++); }

  void line(size_t depth, const std::string& content) {
    text += std::string(4 * depth, ' ') + content + "\n";
  }

  size_t count_ = 0;
};

bool can_hold_tensor(const c10::TypePtr& type) {
  const auto types = type->containedTypes();
  return type->kind() == TypeKind::TensorType ||
         std::any_of(types.begin(), types.end(), [](const auto& t) { return can_hold_tensor(t); });
}

// Whether a dictionary in it has elements that are told apart by its order. A pass that sees one
// of the graph's own inputs can make sure that it is read by its keys; of one in another container
// nobody knows.
bool has_order(const Input& input) {
  return (input.kind == Input::dict && !input.is_alike()) ||
         std::any_of(input.parts.begin(), input.parts.end(), has_order);
}

}  // namespace

bool Input::operator==(const Input& other) const {
  return kind == other.kind && fact.dtype == other.fact.dtype && fact.device == other.fact.device &&
         is_scalar == other.is_scalar && keys == other.keys && parts == other.parts;
}

bool Input::is_known() const {
  return kind != unknown && std::all_of(parts.begin(), parts.end(), [](const Input& part) {
           return part.is_known() && !has_order(part);
         });
}

bool Input::is_alike() const {
  return kind == plain || kind == list ||
         (kind == dict && std::all_of(parts.begin(), parts.end(),
                                      [&](const Input& part) { return part == parts[0]; }));
}

Input read_input(const c10::IValue& value, const c10::TypePtr& type) {
  Input input;
  if (!can_hold_tensor(type)) {
    const auto optional = type->cast<c10::OptionalType>();
    const bool is_fixed = !optional && type->kind() != TypeKind::NumberType;
    input.kind = is_fixed && !type->cast<c10::ClassType>() ? Input::plain : Input::unknown;
  } else if (spelled(type).empty()) {
    return input;
  } else if (const auto optional = type->cast<c10::OptionalType>()) {
    if (value.isNone()) {
      input.kind = Input::none;
    } else {
      input = read_input(value, optional->getElementType());
      return has_order(input) ? Input() : input;
    }
  } else if (is_tensor(type)) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) {
      input.kind = Input::tensor;
      input.fact = {tensor.scalar_type(), tensor.device().type()};
      input.is_scalar = tensor.dim() == 0;
    }
  } else if (const auto tuple = type->cast<c10::TupleType>()) {
    input.kind = Input::tuple;
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      input.parts.push_back(read_input(elements[i], tuple->elements()[i]));
    }
  } else if (const auto list = type->cast<c10::ListType>()) {
    input.kind = Input::list;
    for (const c10::IValue& element : value.toList()) {
      const Input part = read_input(element, list->getElementType());
      if (input.parts.empty()) {
        input.parts.push_back(part);
      } else {
        input.parts[0] = join(input.parts[0], part);
      }
    }
  } else if (const auto dict = type->cast<c10::DictType>()) {
    input.kind = Input::dict;
    for (const auto& entry : value.toGenericDict()) {
      input.keys.push_back(entry.key());
      input.parts.push_back(
          has_literal(entry.key()) ? read_input(entry.value(), dict->getValueType()) : Input());
    }
  }
  return input;
}

Input join(const Input& one, const Input& other) {
  Input joined;
  if (one.kind != other.kind || one.parts.size() != other.parts.size() ||
      (one.kind == Input::tensor && !(one == other))) {
    return joined;
  }
  joined = one;
  for (size_t i = 0; i < one.parts.size(); ++i) {
    size_t same = i;
    if (one.kind == Input::dict) {  // whose keys may come in another order
      const auto at = std::find(other.keys.begin(), other.keys.end(), one.keys[i]);
      if (at == other.keys.end()) {
        return Input();
      }
      same = at - other.keys.begin();
    }
    joined.parts[i] = join(one.parts[i], other.parts[same]);
  }
  return joined;
}

std::string check_of(const Input& input, const c10::TypePtr& type, const std::string& name) {
  Writer writer;
  writer.check(input, type, "x", name, 1);
  return writer.text.empty() ? "" : c10::str("def check(x: ", spelled(type), "):\n", writer.text);
}

}  // namespace jit_amp
