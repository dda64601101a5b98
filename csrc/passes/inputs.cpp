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

std::string told(const Fact& fact) {
  return c10::str(*fact.dtype, " on ", c10::DeviceTypeName(*fact.device, true));
}

class Writer {
 public:
  std::string text;

  void check(const Input& input, const c10::TypePtr& type, const std::string& value,
             const std::string& name, size_t depth) {
    if (const auto optional = type->cast<c10::OptionalType>()) {
      if (input.kind != Input::empty) {
        const std::string present = fresh();
        line(depth, c10::str(present, " = ", value));
        line(depth, c10::str("if ", present, " is not None:"));
        check(input, optional->getElementType(), present, name, depth + 1);
      }
      return;
    }
    if (input.kind == Input::tensor) {
      line(depth, c10::str("assert (", value, ".dtype == ", static_cast<int>(*input.fact.dtype),
                           ") & (", value, ".is_cuda == ",
                           *input.fact.device == c10::DeviceType::CUDA ? "True" : "False",
                           "), \"this module was frozen by jit_amp with an example whose `", name,
                           "` is ", told(input.fact),
                           ": freeze it with an example of the other dtype or device too, or with "
                           "none\""));
      return;
    }
    const auto types = type->containedTypes();
    if (input.kind == Input::tuple) {
      for (size_t i = 0; i < types.size(); ++i) {
        check(input.parts[i], types[i], c10::str(value, "[", i, "]"), c10::str(name, "[", i, "]"),
              depth);
      }
    } else if (input.is_alike() && (input.kind == Input::list || input.kind == Input::dict)) {
      const std::string part = fresh();
      const bool is_list = input.kind == Input::list;
      if (!input.parts.empty() && input.parts[0].kind != Input::empty) {
        line(depth, c10::str("for ", part, " in ", value, is_list ? ":" : ".values():"));
        check(input.parts[0], types[is_list ? 0 : 1], part, name + "[...]", depth + 1);
      }
    } else if (input.kind == Input::dict) {
      for (size_t i = 0; i < input.keys.size(); ++i) {
        const std::string key = literal(input.keys[i]);
        if (input.parts[i].kind != Input::empty) {
          line(depth, c10::str("if ", key, " in ", value, ":"));
          check(input.parts[i], types[1], c10::str(value, "[", key, "]"),
                c10::str(name, "[", key, "]"), depth + 1);
        }
      }
    }
  }

 private:
  std::string fresh() { return c10::str("v", count_++); }

  void line(size_t depth, const std::string& content) {
    text += std::string(4 * depth, ' ') + content + "\n";
  }

  size_t count_ = 0;
};

}  // namespace

bool Input::operator==(const Input& other) const {
  return kind == other.kind && fact.dtype == other.fact.dtype && fact.device == other.fact.device &&
         keys == other.keys && parts == other.parts;
}

bool Input::is_known() const {
  return kind != unknown && (kind != tensor || (fact.dtype && fact.device)) &&
         std::all_of(parts.begin(), parts.end(), [](const Input& part) { return part.is_known(); });
}

bool Input::is_alike() const {
  return kind == empty || kind == list ||
         (kind == dict && std::all_of(parts.begin(), parts.end(),
                                      [&](const Input& part) { return part == parts[0]; }));
}

Input read_input(const c10::IValue& value, const c10::TypePtr& type) {
  Input input;
  if (is_plain(type) || value.isNone()) {
    input.kind = Input::empty;
  } else if (spelled(type).empty()) {
    return input;
  } else if (const auto optional = type->cast<c10::OptionalType>()) {
    return read_input(value, optional->getElementType());
  } else if (is_tensor(type)) {
    const at::Tensor& tensor = value.toTensor();
    if (tensor.defined()) {
      input.kind = Input::tensor;
      input.fact = {tensor.scalar_type(), tensor.device().type()};
    }
  } else if (const auto tuple = type->cast<c10::TupleType>()) {
    input.kind = Input::tuple;
    const auto& elements = value.toTupleRef().elements();
    for (size_t i = 0; i < elements.size(); ++i) {
      input.parts.push_back(read_input(elements[i], tuple->elements()[i]));
    }
  } else if (const auto list = type->cast<c10::ListType>()) {
    input.kind = Input::list;
    Input all;
    all.kind = Input::empty;
    if (!is_plain(list->getElementType())) {
      for (const c10::IValue& element : value.toList()) {
        all = join(all, read_input(element, list->getElementType()));
      }
    }
    input.parts.push_back(all);
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
  if (one.kind == Input::empty || other.kind == Input::empty) {
    return one.kind == Input::empty ? other : one;
  }
  Input joined;
  if (one.kind != other.kind) {
    return joined;
  }
  if (one.kind == Input::dict) {
    joined = one;
    for (size_t i = 0; i < other.keys.size(); ++i) {
      const auto at = std::find(joined.keys.begin(), joined.keys.end(), other.keys[i]);
      if (at == joined.keys.end()) {
        joined.keys.push_back(other.keys[i]);
        joined.parts.push_back(other.parts[i]);
      } else {
        Input& part = joined.parts[at - joined.keys.begin()];
        part = join(part, other.parts[i]);
      }
    }
    return joined;
  }
  if (one.kind == Input::tensor) {
    return one == other ? one : joined;
  }
  joined.kind = one.kind;
  for (size_t i = 0; i < one.parts.size(); ++i) {
    joined.parts.push_back(join(one.parts[i], other.parts[i]));
  }
  return joined;
}

std::string check_of(const Input& input, const c10::TypePtr& type, const std::string& name) {
  Writer writer;
  writer.check(input, type, "x", name, 1);
  return writer.text.empty() ? "" : c10::str("def check(x: ", spelled(type), "):\n", writer.text);
}

}  // namespace jit_amp
