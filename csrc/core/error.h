// AutocastError: the one exception by which jit_amp refuses a program.
//
// Its text always has these parts: what is not supported, with a code; the user's source
// underlined, where there is a node that it belongs to; and what to write instead. All texts stand
// in one table, core/diagnostics.inc. Python sees it as jit_amp.AutocastError, a RuntimeError.
#pragma once

#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/error_report.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/runtime/jit_exception.h>

#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace jit_amp {

struct AutocastError : std::runtime_error {
  using std::runtime_error::runtime_error;
  static constexpr const char* kPythonName = "jit_amp.AutocastError";
};

// The same, thrown by an operator: PyTorch's interpreter makes a plain RuntimeError of every
// exception but JITException, of which it keeps the class's name and the text, through all the
// calls that it leaves. The bindings make an AutocastError of it again.
torch::jit::JITException in_interpreter(const AutocastError& error);

enum class Diagnostic : uint8_t {
#define DIAGNOSTIC(code, name, ...) name,
#include "core/diagnostics.inc"
#undef DIAGNOSTIC
};

// A row of the table.
struct DiagnosticText {
  int code;
  const char* what;
  const char* instead;
  const char* cause;
  const char* example;
};

const std::vector<DiagnosticText>& diagnostic_texts();

// The error that refuses `node`, whose source line is the one that is shown; null for none.
// `arguments` are put in the place of each `{}` of the texts. `where` is what Python knows of the
// source, where there is no node.
AutocastError diagnostic(Diagnostic name, const torch::jit::Node* node,
                         const std::vector<std::string>& arguments = {},
                         const std::string& where = "");
// The diagnostic of a code. Throws std::out_of_range: there is none.
Diagnostic diagnostic_of_code(int code);

// What PyTorch's own code says of a graph, as a diagnostic.
AutocastError unfit(std::string what);

// Whether PyTorch says it of the machine: memory that ran out, a device that fails.
bool is_of_the_machine(const c10::Error& error);

// Runs `work`, which analyses and rewrites a graph: what PyTorch's own code says of the graph is a
// diagnostic. Anything else that goes wrong is a fault of ours, or the machine's, and is not put on
// the user's graph.
template <typename Work>
auto refusing_unfit_graphs(const Work& work) {
  try {
    return work();
  } catch (const c10::Error& error) {
    if (is_of_the_machine(error)) {
      throw;
    }
    throw unfit(error.what_without_backtrace());
  } catch (const torch::jit::ErrorReport& error) {
    throw unfit(error.what());
  } catch (const torch::jit::IRAttributeError& error) {
    throw unfit(error.what());
  }
}

}  // namespace jit_amp
