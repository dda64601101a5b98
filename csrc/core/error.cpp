#include "core/error.h"

#include <algorithm>
#include <sstream>

#include "core/places.h"
#include "core/printable.h"
#include "core/pytorch_release.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

bool has_line(const Node* node) { return node->sourceRange().source() != nullptr; }

// `node` and what may stand for it where it has no line of source, from the nearest: what makes its
// operands, what comes before it, what it is part of, and in the end any node of its graph.
std::vector<const Node*> nearest(const Node* node) {
  std::vector<const Node*> nodes;
  const Node* origin = node;
  for (int steps = 0; steps < 4 && origin; ++steps) {
    nodes.push_back(origin);
    const Node* next = nullptr;
    for (const Value* input : origin->inputs()) {
      if (input->node()->kind() == prim::Enter || input->node()->kind() == prim::CreateObject) {
        next = input->node();
        break;
      }
    }
    origin = next;
  }
  for (const Node* around = node; around; around = around->owningBlock()->owningNode()) {
    for (const Node* before = around; before != around->owningBlock()->param_node();
         before = before->prev()) {
      nodes.push_back(before);
    }
  }
  for (const Node* any : node->owningGraph()->nodes()) {
    nodes.push_back(any);
  }
  return nodes;
}

// The line that an error about `node` shows: the user's, if there is one.
std::string shown_place(const Node* node) {
  const std::vector<const Node*> nodes = has_line(node) ? std::vector{node} : nearest(node);
  for (const auto place : {users_place, innermost_place}) {
    for (const Node* each : nodes) {
      if (std::string text = place(each); !text.empty()) {
        return text;
      }
    }
  }
  return "";
}

// `text` with each `{}` replaced by the next argument.
std::string filled(const std::string& text, std::vector<std::string>::const_iterator& next) {
  std::string result;
  size_t from = 0;
  for (size_t at = text.find("{}"); at != std::string::npos; at = text.find("{}", from)) {
    result += text.substr(from, at - from) + *next++;
    from = at + 2;
  }
  return result + text.substr(from);
}

}  // namespace

torch::jit::JITException in_interpreter(const AutocastError& error) {
  return torch::jit::JITException(error.what(), AutocastError::kPythonName, error.what());
}

const std::vector<DiagnosticText>& diagnostic_texts() {
  static const auto& texts = *new std::vector<DiagnosticText>{
#define DIAGNOSTIC(code, name, ...) {code, __VA_ARGS__},
#include "core/diagnostics.inc"
#undef DIAGNOSTIC
  };
  return texts;
}

AutocastError diagnostic(Diagnostic name, const Node* node,
                         const std::vector<std::string>& arguments, const std::string& where) {
  const DiagnosticText& row = diagnostic_texts()[static_cast<size_t>(name)];
  auto next = arguments.begin();
  const std::string what = filled(row.what, next);
  // The code ends the first line.
  const size_t first = std::min(what.find('\n'), what.size());
  std::ostringstream text;
  text << "jit_amp: " << what.substr(0, first) << "  [JA" << row.code << "]" << what.substr(first)
       << "\n\n";
  if (const std::string place = node ? shown_place(node) : ""; !place.empty()) {
    text << place << "\n";
  }
  text << where << (where.empty() ? "" : "\n\n");
  text << "Instead: " << filled(row.instead, next) << "\n\nMore: jit-amp errors JA" << row.code
       << ", or docs/errors.md#ja" << row.code;
  return AutocastError(printable(text.str(), /*lines=*/true));
}

Diagnostic diagnostic_of_code(int code) {
  const auto& texts = diagnostic_texts();
  const auto found = std::find_if(texts.begin(), texts.end(),
                                  [&](const DiagnosticText& each) { return each.code == code; });
  if (found == texts.end()) {
    throw std::out_of_range("JA" + std::to_string(code));
  }
  return static_cast<Diagnostic>(found - texts.begin());
}

bool is_of_the_machine(const c10::Error& error) {
  // The allocator for the CPU throws no class of its own (c10/core/impl/alloc_cpu.cpp).
  const std::string& what = error.msg();
  return dynamic_cast<const c10::OutOfMemoryError*>(&error) || is_of_the_accelerator(error) ||
         dynamic_cast<const c10::DistError*>(&error) ||
         what.find("DefaultCPUAllocator: ") != std::string::npos;
}

AutocastError unfit(std::string what) {
  const size_t assertion = what.find(" INTERNAL ASSERT");
  if (assertion != std::string::npos) {
    what = "an internal assertion on `" + what.substr(0, assertion) + "`";
  }
  return diagnostic(Diagnostic::unfit, nullptr, {what});
}

}  // namespace jit_amp
