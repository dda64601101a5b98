#include "passes/source/widen.h"

#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <optional>

#include "core/graphs.h"
#include "passes/source/wrap.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Functions in TorchScript, of one type each: `is<n>` whether there is something to cast in a
// value, and `cast<n>`.
class Casts {
 public:
  // The number of the type's functions; none where no tensor is in it, or what is in it cannot be
  // written in a signature: a NamedTuple in a list, an object.
  std::optional<size_t> of(const c10::TypePtr& type) {
    if (type->isSubtypeOf(*c10::TensorType::get())) {
      return add(
          "Tensor", "return x.dtype == 5 or x.dtype == 15\n",
          "y = x\n    if x.dtype == 5 or x.dtype == 15:\n        y = x.to(6)\n    return y\n");
    }
    if (const auto optional = type->cast<c10::OptionalType>()) {
      return of_optional(*optional);
    }
    if (const auto list = type->cast<c10::ListType>()) {
      return of_list(*list);
    }
    if (const auto dict = type->cast<c10::DictType>()) {
      return of_dict(*dict);
    }
    if (const auto tuple = type->cast<c10::TupleType>()) {
      return tuple->name() ? std::nullopt : of_tuple(*tuple);
    }
    return std::nullopt;
  }

  const std::string& source() const { return source_; }
  static std::string name(size_t number) { return "cast" + std::to_string(number); }

 private:
  std::optional<size_t> of_optional(const c10::OptionalType& type) {
    const auto inner = of(type.getElementType());
    if (!inner) {
      return std::nullopt;
    }
    const std::string written = "Optional[" + types_[*inner] + "]", n = std::to_string(*inner);
    return add(
        written,
        "found = False\n    if x is not None:\n        found = is" + n + "(x)\n    return found\n",
        "y: " + written + " = x\n    if x is not None:\n        y = cast" + n +
            "(x)\n    return y\n");
  }

  std::optional<size_t> of_list(const c10::ListType& type) {
    const auto inner = of(type.getElementType());
    if (!inner) {
      return std::nullopt;
    }
    const std::string n = std::to_string(*inner);
    return add("List[" + types_[*inner] + "]",
               "found = False\n    for each in x:\n        found = found or is" + n +
                   "(each)\n    return found\n",
               "y = x\n    if " + is_next() + "(x):\n        y = [cast" + n +
                   "(each) for each in x]\n    return y\n");
  }

  std::optional<size_t> of_dict(const c10::DictType& type) {
    const auto inner = of(type.getValueType());
    if (!inner) {
      return std::nullopt;
    }
    const std::string n = std::to_string(*inner);
    return add("Dict[" + type.getKeyType()->annotation_str() + ", " + types_[*inner] + "]",
               "found = False\n    for each in x.values():\n        found = found or is" + n +
                   "(each)\n    return found\n",
               "y = x\n    if " + is_next() + "(x):\n        y = {key: cast" + n +
                   "(x[key]) for key in x.keys()}\n    return y\n");
  }

  std::optional<size_t> of_tuple(const c10::TupleType& type) {
    std::string written, found = "False", made;
    bool any = false;
    for (size_t i = 0; i < type.elements().size(); ++i) {
      const c10::TypePtr& element = type.elements()[i];
      const auto inner = of(element);
      if (!inner && !is_plain(element)) {
        return std::nullopt;
      }
      const std::string at = "x[" + std::to_string(i) + "]";
      written += (i ? ", " : "") + (inner ? types_[*inner] : element->annotation_str());
      const std::string n = inner ? std::to_string(*inner) : "";
      found += inner ? " or is" + n + "(" + at + ")" : "";
      made += (inner ? "cast" + n + "(" + at + ")" : at) + ", ";
      any |= inner.has_value();
    }
    return any ? add("Tuple[" + written + "]", "return " + found + "\n", "return (" + made + ")\n")
               : std::nullopt;
  }

  std::string is_next() const { return "is" + std::to_string(types_.size()); }

  std::optional<size_t> add(const std::string& type, const std::string& is,
                            const std::string& cast) {
    const auto known = std::find(types_.begin(), types_.end(), type);
    if (known != types_.end()) {
      return known - types_.begin();
    }
    const std::string n = std::to_string(types_.size());
    source_ += "def is" + n + "(x: " + type + ") -> bool:\n    " + is;
    source_ += "def cast" + n + "(x: " + type + ") -> " + type + ":\n    " + cast;
    types_.push_back(type);
    return types_.size() - 1;
  }

  std::vector<std::string> types_;
  std::string source_;
};

// The value cast, at the insertion point; null where there is nothing to cast in its type.
Value* widened(Value* value) {
  Graph& graph = *value->owningGraph();
  // A NamedTuple cannot be written in a signature: tuples are taken apart.
  if (const auto tuple = value->type()->cast<c10::TupleType>()) {
    Node* parts = graph.insertNode(graph.createTupleUnpack(value));
    std::vector<Value*> made;
    bool any = false;
    for (Value* part : parts->outputs()) {
      Value* wide = widened(part);
      any |= wide != nullptr;
      made.push_back(wide ? wide : part);
    }
    if (!any) {
      parts->destroy();
      return nullptr;
    }
    return graph.insertNode(graph.createTuple(made, tuple->schema() ? tuple : nullptr))->output();
  }
  Casts casts;
  const auto number = casts.of(value->type());
  if (!number) {
    return nullptr;
  }
  const auto body = definition(casts.source(), Casts::name(*number));
  return insertGraph(graph, *body, {value}).at(0);
}

bool is_in(const Node* node, const std::vector<Lines>& lines) {
  const auto place = node->sourceRange().file_line_col();
  return place && std::any_of(lines.begin(), lines.end(), [&](const Lines& each) {
           const auto& [file, line, column] = *place;
           const bool ends_so = file.size() > each.file.size() &&
                                file.compare(file.size() - each.file.size() - 1, std::string::npos,
                                             "/" + each.file) == 0;
           return (file == each.file || ends_so) && each.first <= line && line <= each.last;
         });
}

bool gives_tensors(const Node* node) {
  return std::any_of(node->outputs().begin(), node->outputs().end(),
                     [](const Value* value) { return Casts().of(value->type()).has_value(); });
}

// Whether something writes to the result of the node, which is a view, or to a view of that: a cast
// in front of it would be written to instead.
bool is_written_view(const Node* node) {
  const c10::FunctionSchema* schema = node->maybeSchema();
  const auto* alias =
      schema && schema->returns().size() == 1 ? schema->returns()[0].alias_info() : nullptr;
  if (!alias || alias->isWrite()) {
    return false;
  }
  const auto& uses = node->output()->uses();
  return std::any_of(uses.begin(), uses.end(), [](const Use& use) {
    return use.offset == 0 && (is_write(use.user) || is_written_view(use.user));
  });
}

bool is_of_lines(const Node* node, const std::vector<Lines>& lines) {
  const bool is_call = node->kind() == prim::CallMethod || node->kind() == prim::CallFunction;
  const bool is_operator =
      node->kind().is_aten() && gives_tensors(node) && !is_write(node) && !is_written_view(node);
  return (is_operator || (is_call && !is_autocast_class(node->input(0)->type()))) &&
         is_in(node, lines);
}

}  // namespace

void widen_inputs(Graph& graph) {
  const WithInsertPoint here(*graph.nodes().begin());
  for (Value* input : std::vector<Value*>(graph.inputs().begin(), graph.inputs().end())) {
    const std::vector<Use> uses = input->uses();
    if (Value* wide = widened(input)) {
      for (const Use& use : uses) {
        use.user->replaceInput(use.offset, wide);
      }
    }
  }
}

void widen_lines(Block* block, Graph& pattern, const std::vector<Lines>& lines) {
  std::vector<Node*> nodes(block->nodes().begin(), block->nodes().end());
  for (Node* node : nodes) {
    for (Block* inner : node->blocks()) {
      widen_lines(inner, pattern, lines);
    }
    if (!is_of_lines(node, lines)) {
      continue;
    }
    const WithInsertPoint here(node);
    for (size_t i = 0; i < node->inputs().size(); ++i) {
      if (Value* wide = widened(node->input(i))) {
        node->replaceInput(i, wide);
      }
    }
    Node* const after = node->next();
    std::vector<Value*> scopes;
    for (const char* device : {"cpu", "cuda"}) {
      scopes.push_back(enter_scope(node, pattern, {device, std::nullopt, false}));
    }
    for (auto scope = scopes.rbegin(); scope != scopes.rend(); ++scope) {
      exit_scope(after, pattern, *scope);
    }
  }
}

}  // namespace jit_amp
