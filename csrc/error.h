// AutocastError: the one exception by which jit_amp refuses a program.
//
// Its text always has three parts: what is not supported, the user's source underlined, and what to
// write instead. Python sees it as jit_amp.AutocastError, a RuntimeError.
#pragma once

#include <torch/csrc/jit/ir/ir.h>

#include <stdexcept>
#include <string>

namespace jit_amp {

struct AutocastError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// The error that refuses `node`: its source line is the one that is shown.
inline AutocastError refusal(const torch::jit::Node* node, const std::string& what,
                             const std::string& instead) {
  std::ostringstream text;
  text << "jit_amp: " << what << "\n\n";
  node->sourceRange().highlight(text);
  text << "\nInstead: " << instead;
  return AutocastError(text.str());
}

}  // namespace jit_amp
