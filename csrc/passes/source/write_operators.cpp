#include "passes/source/write_operators.h"

#include <algorithm>
#include <optional>
#include <string>

#include "core/debug_info.h"
#include "core/devices.h"
#include "core/graphs.h"

namespace jit_amp {

using namespace torch::jit;

namespace {

// The code of a text without its comments and strings.
std::string without_asides(const std::string& text) {
  std::string code;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '#') {
      i = std::min(text.find('\n', i), text.size());
    } else if (text[i] == '"' || text[i] == '\'') {
      const char quote = text[i];
      for (++i; i < text.size() && text[i] != quote; ++i) {
        i += text[i] == '\\';
      }
    } else {
      code += text[i];
    }
  }
  return code;
}

struct Assignment {
  Symbol compiled;   // what TorchScript's compiler makes of it
  const char* text;  // what the line has
  Symbol of_python;
  bool of_dictionary = false;  // the compiler does so there alone
};

const Assignment kAssignments[] = {
    {aten::pow, "**=", aten::pow_},
    {aten::fmod_, "%=", aten::remainder_},
    {aten::bitwise_and, "&=", Symbol::aten("bitwise_and_")},
    {aten::bitwise_or, "|=", Symbol::aten("bitwise_or_")},
    {aten::bitwise_xor, "^=", Symbol::aten("bitwise_xor_")},
    {aten::add, "+=", aten::add_, true},
    {aten::sub, "-=", aten::sub_, true},
    {aten::mul, "*=", aten::mul_, true},
    {aten::div, "/=", aten::div_, true},
    {aten::fmod, "%=", aten::remainder_, true},
    {aten::__and__, "&=", Symbol::aten("bitwise_and_"), true},
    {aten::__or__, "|=", Symbol::aten("bitwise_or_"), true},
    {aten::__xor__, "^=", Symbol::aten("bitwise_xor_"), true},
    {aten::__lshift__, "<<=", Symbol::aten("__ilshift__"), true},
    {aten::__rshift__, ">>=", Symbol::aten("__irshift__"), true},
};

// Whether the node computes with an element of a dictionary.
bool is_of_dictionary(const Node* node) {
  const Node* from = node->input(0)->node();
  return from->kind() == aten::__getitem__ &&
         from->input(0)->type()->kind() == c10::TypeKind::DictType;
}

// What the node was compiled from; of a program that was loaded, before it was saved.
std::string source_text(const Node* node) { return as_written(node->sourceRange()).text().str(); }

// The operator that Python calls, if the node is one of these assignments.
std::optional<Symbol> of_python(const Node* node) {
  for (const Assignment& each : kAssignments) {
    if (node->kind() == each.compiled && node->inputs().size() >= 2 &&
        is_tensor(node->input(0)->type()) && (!each.of_dictionary || is_of_dictionary(node)) &&
        without_asides(source_text(node)).find(each.text) != std::string::npos) {
      return each.of_python;
    }
  }
  return std::nullopt;
}

// The `x` of `number - x`; null if the node is something else. The text is that of the function
// that TorchScript has for it (torch/csrc/jit/frontend/builtin_functions.cpp).
Value* subtracted(const Node* node) {
  const bool is_it = node->kind() == aten::add && node->inputs().size() == 3 &&
                     node->input(0)->node()->kind() == aten::neg &&
                     source_text(node) == "torch.neg(b) + a";
  return is_it ? node->input(0)->node()->input(0) : nullptr;
}

// Whether the node is `x.norm()`, without arguments. Its place ends within the method's name.
bool is_frobenius(const Node* node) {
  const SourceRange place = as_written(node->sourceRange());
  if (node->kind() != aten::norm || !place.source()) {
    return false;
  }
  const std::string text = place.source()->text_str().str();
  const size_t open = text.find('(', place.end());
  return open != std::string::npos &&
         text.find_first_not_of(" \n", open + 1) == text.find(')', open);
}

// `frobenius_norm` on the accelerator, and the node itself elsewhere.
void choose_norm(Node* node, const std::string& accelerator) {
  const WithInsertPoint here(node);
  Graph& graph = *node->owningGraph();
  Value* x = node->input(0);
  Value* device = graph.insert(prim::device, {x});
  Value* type = graph.insert(Symbol::prim("type"), {device});
  Value* result = insert_if(
      graph.insert(aten::eq, {type, accelerator}),
      [&] {
        return graph.insert(Symbol::aten("frobenius_norm"),
                            {x, std::vector<int64_t>(), /*keepdim=*/false});
      },
      [&] {
        return graph.insertNode(graph.createClone(node, [](Value* value) { return value; }))
            ->output();
      });
  node->output()->replaceAllUsesWith(result->setType(c10::TensorType::get()));
  node->destroy();
}

}  // namespace

bool write_operators(Graph& graph) {
  const c10::DeviceType accelerator = accelerator_here();
  bool changed = false;
  for (Node* node : all_nodes(graph)) {
    if (const auto kind = of_python(node)) {
      node->replaceWithNewSymbol(*kind);
      node->destroy();
      changed = true;
    } else if (Value* x = subtracted(node)) {
      Node* negation = node->input(0)->node();
      node->replaceInput(0, x);
      node->replaceWithNewSymbol(aten::rsub);
      node->destroy();
      if (!negation->hasUses()) {
        negation->destroy();
      }
      changed = true;
    } else if (accelerator != c10::DeviceType::CUDA && is_frobenius(node)) {
      choose_norm(node, c10::DeviceTypeName(accelerator, /*lower_case=*/true));
      changed = true;
    }
  }
  return changed;
}

}  // namespace jit_amp
