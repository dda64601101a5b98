#include "passes/source/cast_tensors.h"

#include <torch/csrc/jit/api/compilation_unit.h>
#include <torch/csrc/jit/frontend/resolver.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// The types of a source, T0, T1 and so on in it: many have no name that can be written.
struct Types : Resolver {
  std::vector<c10::TypePtr> types;

  std::string name_of(const c10::TypePtr& type) {
    types.push_back(type);
    return c10::str("T", types.size() - 1);
  }
  c10::TypePtr resolveType(const std::string& name, const SourceRange& where) override {
    return types.at(std::stoul(name.substr(1)));
  }
  std::shared_ptr<SugaredValue> resolveValue(const std::string& name, GraphFunction& function,
                                             const SourceRange& where) override {
    return std::make_shared<NamedTupleConstructor>(
        resolveType(name, where)->expect<c10::TupleType>());
  }
};

// A key as it is written in TorchScript.
std::string constant_text(const c10::IValue& key) {
  if (key.isInt()) {
    return c10::str(key.toInt());
  }
  std::string text = "'";
  for (const char c : key.toStringRef()) {
    text += c == '\n' ? "\\n" : c == '\'' || c == '\\' ? std::string("\\") + c : std::string(1, c);
  }
  return text + "'";
}

// Writes TorchScript. It calls nothing: a node that was inlined points to the function of the call,
// which would have to stay.
class CastWriter {
 public:
  explicit CastWriter(const CastOf& cast_of) : cast_of_(cast_of) {}

  std::string text;
  const std::shared_ptr<Types> types = std::make_shared<Types>();

  // Whether there is something to cast in values of the type.
  bool casts(const c10::TypePtr& type, const AbstractValue& known) const {
    if (type->kind() == c10::TypeKind::TensorType) {
      return cast_of_(fact_of(known)).has_value();
    }
    if (!can_cast_tensors(type) || !mentions_tensors(type)) {
      return false;
    }
    const auto parts = parts_of(type, known);
    return std::any_of(parts.begin(), parts.end(),
                       [&](const Part& part) { return casts(part.type, part.known); });
  }

  // Writes what casts the variable, in which there is something to cast; returns that of the
  // result.
  std::string cast(const std::string& value, const c10::TypePtr& type, const AbstractValue& known,
                   size_t depth) {
    const std::string result = fresh();
    if (type->kind() == c10::TypeKind::TupleType) {
      std::vector<std::string> elements;
      for (const auto& [part, element] : unpacked(value, type, known, depth)) {
        elements.push_back(cast_part(element, part, depth));
      }
      const std::string joined = c10::Join(", ", elements);
      const bool is_named = type->expect<c10::TupleType>()->schema() != nullptr;
      line(depth, is_named ? c10::str(result, " = ", types->name_of(type), "(", joined, ")")
                           : c10::str(result, " = (", joined, ",)"));
      return result;
    }
    line(depth, c10::str(result, ": ", types->name_of(type), " = ", value));
    if (type->kind() == c10::TypeKind::TensorType) {
      line(depth, c10::str("if ", question(value, known), ":"));
      line(depth + 1, c10::str(result, " = ", value, ".to(",
                               static_cast<int>(cast_of_(fact_of(known))->to), ")"));
      return result;
    }
    if (type->kind() == c10::TypeKind::OptionalType) {
      line(depth, c10::str("if ", value, " is not None:"));
      const std::string present =
          cast(value, type->expect<c10::OptionalType>()->getElementType(), known, depth + 1);
      line(depth + 1, c10::str(result, " = ", present));
      return result;
    }
    const std::string flag = fresh();
    line(depth, flag + " = False");
    ask(flag, value, type, known, depth);
    line(depth, c10::str("if ", flag, ":"));
    const bool is_list = type->kind() == c10::TypeKind::ListType;
    const std::string copy = fresh();
    line(depth + 1, c10::str(copy, ": ", types->name_of(type), " = ", is_list ? "[]" : "{}"));
    loop(value, type, known, depth + 1,
         [&](const std::string& key, const std::string& element, const Part& part, size_t inner) {
           const std::string entry = cast_part(element, part, inner);
           line(inner, is_list ? c10::str(copy, ".append(", entry, ")")
                               : c10::str(copy, "[", key, "] = ", entry));
         });
    line(depth + 1, c10::str(result, " = ", copy));
    return result;
  }

  std::string fresh() { return c10::str("v", count_++); }

  void line(size_t depth, const std::string& content) {
    text += std::string(4 * depth, ' ') + content + "\n";
  }

 private:
  struct Part {
    c10::TypePtr type;
    AbstractValue known;
    std::optional<c10::IValue> key = std::nullopt;  // of a dictionary: of this one alone
  };

  std::string cast_part(const std::string& value, const Part& part, size_t depth) {
    return casts(part.type, part.known) ? cast(value, part.type, part.known, depth) : value;
  }

  static Fact fact_of(const AbstractValue& known) {
    return known.kind == AbstractValue::tensor ? known.fact : Fact{};
  }

  // Elements of a tuple; one part for all elements of a list and all values of a dictionary, but
  // several where its keys are known and their values differ, and the last for all other keys.
  std::vector<Part> parts_of(const c10::TypePtr& type, const AbstractValue& known) const {
    const auto inside = type->containedTypes();
    std::vector<Part> parts;
    if (type->kind() == c10::TypeKind::TupleType) {
      for (size_t i = 0; i < inside.size(); ++i) {
        parts.push_back({inside[i], known.at(static_cast<int64_t>(i))});
      }
    } else if (type->kind() == c10::TypeKind::OptionalType) {
      parts.push_back({type->expect<c10::OptionalType>()->getElementType(), known});
    } else if (type->kind() == c10::TypeKind::DictType) {
      for (size_t i = 0; known.is_fixed && i < known.keys.size(); ++i) {
        if ((known.keys[i].isString() || known.keys[i].isInt()) &&
            !(known.parts[i] == known.element())) {
          parts.push_back({inside[1], known.parts[i], known.keys[i]});
        }
      }
      parts.push_back({inside[1], known.element()});
    } else if (type->kind() == c10::TypeKind::ListType) {
      parts.push_back({inside[0], known.element()});
    }
    return parts;
  }

  std::vector<std::pair<Part, std::string>> unpacked(const std::string& value,
                                                     const c10::TypePtr& type,
                                                     const AbstractValue& known, size_t depth) {
    std::vector<std::pair<Part, std::string>> elements;
    for (const Part& part : parts_of(type, known)) {
      const std::string name = fresh();
      line(depth, c10::str(name, " = ", value, "[", elements.size(), "]"));
      elements.emplace_back(part, name);
    }
    return elements;
  }

  // A loop over a list or a dictionary; `write` writes what is done with a key and its element.
  template <class Write>
  void loop(const std::string& value, const c10::TypePtr& type, const AbstractValue& known,
            size_t depth, const Write& write) {
    const std::string key = fresh(), element = fresh();
    const auto parts = parts_of(type, known);
    if (type->kind() == c10::TypeKind::ListType) {
      line(depth, c10::str("for ", element, " in ", value, ":"));
      write(key, element, parts.at(0), depth + 1);
      return;
    }
    line(depth, c10::str("for ", key, ", ", element, " in ", value, ".items():"));
    for (const Part& part : parts) {
      const bool is_first = &part == &parts.front();
      if (part.key) {
        line(depth + 1,
             c10::str(is_first ? "if " : "elif ", key, " == ", constant_text(*part.key), ":"));
      } else if (!is_first) {
        line(depth + 1, "else:");
      }
      write(key, element, part, depth + (parts.size() == 1 ? 1 : 2));
    }
  }

  // Writes what makes the variable `flag` true where there is something to cast in a value.
  void ask(const std::string& flag, const std::string& value, const c10::TypePtr& type,
           const AbstractValue& known, size_t depth) {
    if (!casts(type, known)) {
      line(depth, "pass");
    } else if (type->kind() == c10::TypeKind::TensorType) {
      line(depth, c10::str(flag, " = ", flag, " or ", question(value, known)));
    } else if (type->kind() == c10::TypeKind::OptionalType) {
      line(depth, c10::str("if ", value, " is not None:"));
      ask(flag, value, type->expect<c10::OptionalType>()->getElementType(), known, depth + 1);
    } else if (type->kind() == c10::TypeKind::TupleType) {
      for (const auto& [part, element] : unpacked(value, type, known, depth)) {
        ask(flag, element, part.type, part.known, depth);
      }
    } else {
      loop(value, type, known, depth,
           [&](const std::string&, const std::string& element, const Part& part, size_t inner) {
             ask(flag, element, part.type, part.known, inner);
           });
    }
  }

  std::string question(const std::string& value, const AbstractValue& known) const {
    std::vector<std::string> dtypes;
    for (const c10::ScalarType dtype : cast_of_(fact_of(known))->from.list()) {
      dtypes.push_back(c10::str(value, ".dtype == ", static_cast<int>(dtype)));
    }
    return c10::Join(" or ", dtypes);
  }

  const CastOf& cast_of_;
  size_t count_ = 0;
};

}  // namespace

bool can_cast_tensors(const c10::TypePtr& type) {
  const auto inside = type->containedTypes();
  switch (type->kind()) {
    case c10::TypeKind::TensorType:
      return true;
    case c10::TypeKind::DictType:
      return can_cast_tensors(inside[1]);
    case c10::TypeKind::OptionalType:
      return can_cast_tensors(type->expect<c10::OptionalType>()->getElementType());
    case c10::TypeKind::ListType:
    case c10::TypeKind::TupleType:
      return std::all_of(inside.begin(), inside.end(), can_cast_tensors);
    default:
      return !may_hold_tensors(type);
  }
}

Value* cast_tensors(Value* value, const AbstractValue& known, const CastOf& cast_of,
                    const std::string& name) {
  Graph& graph = *value->owningGraph();
  const auto type = unshapedType(value->type());
  const auto shown = std::make_shared<Source>(name + "\n", "<jit_amp " + name + ">", 1);
  const SourceRange where(shown, 0, name.size());
  // Tuples are taken apart here, so that what is known of their parts stays known.
  if (const auto tuple = type->cast<c10::TupleType>()) {
    Node* parts = graph.insertNode(graph.createTupleUnpack(value));
    parts->setSourceRange(where);
    std::vector<Value*> elements;
    bool any = false;
    for (size_t i = 0; i < parts->outputs().size(); ++i) {
      Value* part = parts->output(i);
      Value* cast = cast_tensors(part, known.at(static_cast<int64_t>(i)), cast_of, name);
      any |= cast != nullptr;
      elements.push_back(cast ? cast : part);
    }
    if (!any) {
      parts->destroy();
      return nullptr;
    }
    Node* joined = graph.insertNode(graph.createTuple(elements, tuple->schema() ? tuple : nullptr));
    joined->setSourceRange(where);
    return joined->output();
  }
  CastWriter writer(cast_of);
  if (!writer.casts(type, known)) {
    return nullptr;
  }
  const std::string result = writer.cast("x", type, known, 1);
  const std::string written = writer.types->name_of(type);
  CompilationUnit unit;
  unit.define(std::nullopt,
              c10::str("def cast(x: ", written, ") -> ", written, ":\n", writer.text, "    return ",
                       result, "\n"),
              writer.types, nullptr);
  const auto body = toGraphFunction(unit.get_function("cast")).graph()->copy();
  for (Node* node : all_nodes(*body)) {
    node->setSourceRange(where);
  }
  return insertGraph(graph, *body, {value}).at(0);
}

}  // namespace jit_amp
