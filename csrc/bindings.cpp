// jit_amp._C: what the Python face calls.
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/extension.h>

#include "error.h"
#include "passes/policy.h"
#include "runtime/attach.h"
#include "runtime/freeze.h"

namespace {

using torch::jit::GraphFunction;
using torch::jit::Module;
using torch::jit::StrongFunctionPtr;

PYBIND11_MODULE(_C, m) {
  py::register_exception<jit_amp::AutocastError>(m, "AutocastError", PyExc_RuntimeError);
  m.def("lower_function",
        [](const StrongFunctionPtr& function) { return jit_amp::lowered_copy(function); });
  m.def("lower_module", [](const Module& module) { return jit_amp::lowered_copy(module); });
  m.def("lowered_graph", [](const StrongFunctionPtr& function, bool cpu, bool cuda) {
    return jit_amp::lowered_graph(torch::jit::toGraphFunction(*function.function_), cpu, cuda);
  });
  m.def("lowered_method_graph",
        [](const Module& module, const std::string& method, bool cpu, bool cuda) {
          return jit_amp::lowered_graph(
              torch::jit::toGraphFunction(module.get_method(method).function()), cpu, cuda);
        });
  m.def("freeze_module", [](const Module& module, const std::vector<std::string>& preserved_attrs,
                            const std::vector<py::tuple>& examples, bool optimize_numerics) {
    std::vector<torch::jit::Stack> stacks;
    for (const py::tuple& example : examples) {
      auto stack = torch::jit::createStackForSchema(
          module.get_method("forward").function().getSchema(), torch::jit::tuple_slice(example),
          py::kwargs(), module._ivalue());
      stack.erase(stack.begin());  // self
      stacks.push_back(std::move(stack));
    }
    const py::gil_scoped_release no_gil;
    return jit_amp::freeze(module, preserved_attrs, stacks, optimize_numerics);
  });
  m.def("state_policy",
        [](const std::string& name, const std::string& device, const std::string& policy) {
          jit_amp::state_policy(name, c10::Device(device).type(), jit_amp::policy_named(policy));
        });
  m.def("policy_table", [](const std::string& device) {
    py::dict table;
    for (const auto& [overload, policy] : jit_amp::policy_table(c10::Device(device).type())) {
      table[py::str(overload)] = jit_amp::name_of(policy);
    }
    return table;
  });
}

}  // namespace
