// What scripts/observe needs of PyTorch's RecordFunction: which operators are called, inside which,
// with which operands.
#include <ATen/record_function.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include <string>
#include <tuple>
#include <vector>

namespace {

// An operator that was called: its full name, the number of the call that it was called inside (-1
// if none), and what it was called with.
struct Call {
  std::string name;
  int64_t parent;
  std::vector<c10::IValue> operands;
};

struct Recording {
  std::vector<Call> calls;
  std::vector<int64_t> open;
};

Recording recording;
bool keep_operands = false;
at::CallbackHandle handle = 0;

std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
  const auto name = function.operator_name();
  Call call{name ? toString(*name) : std::string(function.name()),
            recording.open.empty() ? -1 : recording.open.back(),
            {}};
  // Of inner calls the dtypes are enough; a tensor that a call only borrows must not be kept.
  for (const c10::IValue& operand : function.inputs()) {
    if (keep_operands) {
      call.operands.push_back(operand);
    } else if (operand.isTensor()) {
      const at::Tensor& tensor = operand.toTensor();
      call.operands.emplace_back(
          tensor.defined() ? static_cast<int64_t>(tensor.scalar_type()) : int64_t{-1});
    } else if (operand.isTensorList()) {
      for (const at::Tensor& tensor : operand.toTensorVector()) {
        call.operands.emplace_back(
            tensor.defined() ? static_cast<int64_t>(tensor.scalar_type()) : int64_t{-1});
      }
    } else if (operand.isOptionalTensorList()) {
      for (const auto& element : operand.toListRef()) {
        call.operands.emplace_back(element.isTensor() && element.toTensor().defined()
                                       ? static_cast<int64_t>(element.toTensor().scalar_type())
                                       : int64_t{-1});
      }
    }
  }
  recording.calls.push_back(std::move(call));
  recording.open.push_back(static_cast<int64_t>(recording.calls.size()) - 1);
  return nullptr;
}

void end(const at::RecordFunction&, at::ObserverContext*) {
  if (!recording.open.empty()) {
    recording.open.pop_back();
  }
}

void start(bool with_operands) {
  recording = Recording{};
  keep_operands = with_operands;
  handle = at::addThreadLocalCallback(
      at::RecordFunctionCallback(begin, end).needsInputs(true).scopes(
          {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
}

// The calls as (name, parent, operands). An operand is a value, or, without operands, the number of
// a tensor's dtype.
py::list stop() {
  at::removeCallback(handle);
  py::list result;
  for (const Call& call : recording.calls) {
    py::list operands;
    for (const c10::IValue& operand : call.operands) {
      try {
        operands.append(torch::jit::toPyObject(operand));
      } catch (const std::exception&) {
        operands.append(py::ellipsis());  // of a type that Python does not know
      }
    }
    result.append(py::make_tuple(call.name, call.parent, operands));
  }
  recording = Recording{};
  return result;
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("start", &start);
  m.def("stop", &stop);
}
