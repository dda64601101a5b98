// jit_amp._C: what the Python face calls.
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/python/pybind_utils.h>
#include <torch/csrc/jit/runtime/jit_exception.h>
#include <torch/extension.h>

#include <map>

#include "analysis/has_scopes.h"
#include "analysis/lost_writes.h"
#include "analysis/modules.h"
#include "analysis/policy.h"
#include "analysis/reach.h"
#include "analysis/traits.h"
#include "core/copies.h"
#include "core/debug_info.h"
#include "core/error.h"
#include "core/forks.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "core/places.h"
#include "core/printable.h"
#include "passes/freeze/own_constants.h"
#include "passes/quirks/files/write_numbers.h"
#include "passes/source/restore_trace.h"
#include "passes/source/wrap.h"
#include "pipelines/alone.h"
#include "pipelines/tables.h"
#include "runtime/archive.h"
#include "runtime/attach.h"
#include "runtime/explain.h"
#include "runtime/export.h"
#include "runtime/freeze.h"
#include "runtime/kept_operators.h"
#include "runtime/program.h"
#include "runtime/record.h"
#include "runtime/replaced.h"
#include "runtime/watch.h"

namespace {

using torch::jit::GraphFunction;
using torch::jit::Module;
using torch::jit::StrongFunctionPtr;

// Runs `work` with PyTorch's C++ warnings as Python's.
template <typename Work>
auto warning_in_python(const Work& work) {
  torch::PyWarningHandler warnings;
  try {
    return work();
  } catch (...) {
    warnings.set_in_exception();
    throw;
  }
}

// device_type, dtype, enabled, cache_enabled: as torch.autocast takes them.
using PythonScope =
    std::tuple<std::string, std::optional<at::ScalarType>, bool, std::optional<bool>>;

std::vector<jit_amp::Around> around(const std::vector<PythonScope>& scopes) {
  std::vector<jit_amp::Around> result;
  for (const auto& [device_type, dtype, enabled, cache_enabled] : scopes) {
    result.push_back({device_type,
                      dtype ? std::optional(static_cast<int64_t>(*dtype)) : std::nullopt, enabled,
                      cache_enabled});
  }
  return result;
}

// The state around a call: the devices whose autocast is on, with their dtypes.
jit_amp::AutocastState entry_state(
    const std::map<std::string, std::optional<at::ScalarType>>& entry) {
  jit_amp::AutocastState state;
  for (const auto& [device, dtype] : entry) {
    state.devices[c10::Device(device).type()] = {true, dtype};
  }
  return state;
}

std::optional<jit_amp::Ignoring> how(const std::shared_ptr<torch::jit::Graph>& pattern, bool ignore,
                                     bool scopes, bool widens) {
  return ignore ? std::optional(jit_amp::Ignoring{pattern, scopes, widens}) : std::nullopt;
}

// Arguments of a method, each as a stack without self. Throws TypeError: one does not fit;
// PyTorch's text says which, of which type, and forward's signature.
std::vector<torch::jit::Stack> stacks_of(const Module& module,
                                         const std::vector<py::tuple>& examples,
                                         const std::string& method = "forward") {
  std::vector<torch::jit::Stack> stacks;
  for (const py::tuple& example : examples) {
    try {
      stacks.push_back(torch::jit::createStackForSchema(
          module.get_method(method).function().getSchema(), torch::jit::tuple_slice(example),
          py::kwargs(), module._ivalue()));
    } catch (const std::runtime_error& error) {
      throw py::type_error("an example that " + method + " does not take: " + error.what());
    }
    stacks.back().erase(stacks.back().begin());  // self
  }
  return stacks;
}

// Of a file that was loaded: bytes that are no UTF-8 are escaped.
py::str as_text(const std::string& text) {
  PyObject* made =
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace");
  if (!made) {
    throw py::error_already_set();
  }
  return py::reinterpret_steal<py::str>(made);
}

py::tuple as_python(const jit_amp::Place& place) {
  const py::object text = place.text ? py::object(as_text(*place.text)) : py::none();
  return py::make_tuple(as_text(place.file), place.line, place.column, as_text(place.function),
                        text);
}

template <typename Texts>
py::list as_python(const Texts& sources) {
  py::list texts;
  for (const auto& [file, line, text] : sources) {
    texts.append(py::make_tuple(as_text(file), line, as_text(text)));
  }
  return texts;
}

py::dict as_python(const std::map<jit_amp::SourceLine, std::vector<jit_amp::SourceSpan>>& lines) {
  py::dict made;
  for (const auto& [at, spans] : lines) {
    made[py::make_tuple(as_text(at.first), at.second)] = spans;
  }
  return made;
}

py::dict as_python(const jit_amp::OperatorRecord& at) {
  const auto places = [](const std::vector<jit_amp::Place>& stack) {
    py::list list;
    for (const auto& place : stack) {
      list.append(as_python(place));
    }
    return list;
  };
  const auto dtypes = [](const std::vector<std::optional<at::ScalarType>>& all) {
    py::list list;
    for (const auto& dtype : all) {
      const bool is_number = dtype == at::ScalarType::Undefined;
      list.append(is_number ? py::object(py::str("number")) : py::cast(dtype));
    }
    return list;
  };
  py::dict states, scopes;
  for (const auto& [device, state] : at.state) {
    states[py::str(device)] = py::make_tuple(state.enabled, state.dtype, state.by_scope);
  }
  for (const auto& [device, place] : at.scope) {
    scopes[py::str(device)] = as_python(place);
  }
  py::list casts;
  for (const auto& cast : at.casts) {
    casts.append(py::make_tuple(cast.from, cast.to, cast.count, cast.bytes, cast.bytes_of_leaves));
  }
  py::object numerics = py::none();
  if (at.numerics) {
    const auto& n = *at.numerics;
    numerics = py::dict(py::arg("introduced") = n.introduced, py::arg("total") = n.total,
                        py::arg("largest") = n.largest, py::arg("elements") = n.elements,
                        py::arg("nans") = n.nans, py::arg("infinities") = n.infinities,
                        py::arg("overflows") = n.overflows, py::arg("underflows") = n.underflows,
                        py::arg("subnormals") = n.subnormals);
  }
  py::object gradient = py::none();
  if (at.gradient) {
    const auto& g = *at.gradient;
    gradient = py::dict(py::arg("dtype") = g.dtype, py::arg("largest") = g.largest,
                        py::arg("elements") = g.elements, py::arg("underflows") = g.underflows,
                        py::arg("overflow_scale") = g.overflow_scale);
  }
  return py::dict(py::arg("name") = as_text(at.name), py::arg("stack") = places(at.stack),
                  py::arg("module") = as_text(at.module), py::arg("is_call") = at.is_call,
                  py::arg("states") = states, py::arg("scopes") = scopes,
                  py::arg("policies") = at.policy, py::arg("calls") = at.calls,
                  py::arg("seconds") = at.seconds, py::arg("cast_seconds") = at.cast_seconds,
                  py::arg("operands") = dtypes(at.operands),
                  py::arg("results") = dtypes(at.results), py::arg("devices") = at.devices,
                  py::arg("casts") = casts, py::arg("taken") = at.taken,
                  py::arg("makers") = at.makers, py::arg("shapes") = at.shapes,
                  py::arg("numerics") = numerics, py::arg("gradient") = gradient);
}

// The number of an operator that raised, and its arguments: name, value, the number of the operator
// that gave it, what else it is, and where that is.
py::object as_python(const std::optional<jit_amp::Failed>& failed) {
  if (!failed) {
    return py::none();
  }
  py::list operands;
  for (const auto& operand : failed->operands) {
    py::object value = py::none();
    try {
      const bool is_number = operand.value.isTensor() && operand.value.toTensor().defined() &&
                             operand.value.toTensor().unsafeGetTensorImpl()->is_wrapped_number();
      value = torch::jit::toPyObject(is_number ? c10::IValue(operand.value.toTensor().item())
                                               : operand.value);
    } catch (const std::exception&) {  // an object of no Python class
    }
    const py::object place = operand.place ? py::object(as_python(*operand.place)) : py::none();
    operands.append(py::make_tuple(as_text(operand.name), value, operand.maker,
                                   as_text(operand.origin), place));
  }
  return py::make_tuple(failed->id, operands);
}

// What was seen of a function's operators, what eager would warn of, the texts they stand in, and
// where the program raised: a function that raises the same, and the operator.
py::tuple as_python(const jit_amp::Explained& explained) {
  py::list operators;
  for (const auto& at : explained.operators) {
    operators.append(as_python(at));
  }
  py::object raises = py::none();
  if (explained.error) {
    raises = py::cpp_function([error = explained.error] { std::rethrow_exception(error); });
  }
  return py::make_tuple(operators, explained.warnings, as_python(explained.sources), raises,
                        as_python(explained.failed));
}

// Errors, and PyTorch's as Python knows them.
void bind_errors(py::module_& m) {
  py::register_exception<jit_amp::AutocastError>(m, "AutocastError", PyExc_RuntimeError);
  // In our own functions, as in PyTorch's: torch.OutOfMemoryError, and its like.
  py::register_local_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(thrown);
    } catch (const c10::Error& error) {
      if (!jit_amp::is_of_the_machine(error)) {
        throw;
      }
      torch::translate_exception_to_python(thrown);
    }
  });
  // One that came through PyTorch's interpreter (runtime/program.cpp), out of any call of PyTorch's
  // bindings: translators are shared with them. What is not ours goes on to PyTorch's translator.
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      std::rethrow_exception(std::move(thrown));
    } catch (const torch::jit::JITException& error) {
      if (error.getPythonClassName() != jit_amp::AutocastError::kPythonName) {
        throw;
      }
      const py::object type = py::module_::import("jit_amp._C").attr("AutocastError");
      PyErr_SetString(type.ptr(), error.getOriginalMsg().value_or(error.what()).c_str());
    }
  });
  m.def("diagnostic_texts", [] {
    std::vector<std::tuple<int, std::string, std::string, std::string, std::string>> rows;
    for (const auto& row : jit_amp::diagnostic_texts()) {
      rows.emplace_back(row.code, row.what, row.instead, row.cause, row.example);
    }
    return rows;
  });
  m.def("set_package_folders", &jit_amp::set_package_folders);
  m.def("place_of", [](const torch::jit::Node* node) {
    return as_python(jit_amp::place_of(node->sourceRange()));
  });
  // PyTorch reads it when it is asked for a place, and may crash.
  m.def("forget_damaged_places", [](const Module& module) {
    for (torch::jit::Function* function : module._ivalue()->compilation_unit()->get_functions()) {
      if (GraphFunction* compiled = torch::jit::tryToGraphFunction(*function)) {
        for (const torch::jit::Node* node : jit_amp::all_nodes(*compiled->graph())) {
          jit_amp::before_saving(node->sourceRange());
        }
      }
    }
  });
  m.def("users_line", [](const torch::jit::Node* node) {
    const auto place = jit_amp::users_line(node);
    return place ? py::object(as_python(*place)) : py::none();
  });
  m.def("printable", [](const py::bytes& text, bool lines) {
    return jit_amp::printable(std::string(text), lines);
  });
  // Those that Python finds.
  m.def(
      "refuse",
      [](int code, const std::vector<std::string>& arguments, const std::string& where) {
        throw jit_amp::diagnostic(jit_amp::diagnostic_of_code(code), nullptr, arguments, where);
      },
      py::arg("code"), py::arg("arguments"), py::arg("where") = "");
  m.def("refuse_export",
        [](const torch::jit::Node* node, int code, const std::vector<std::string>& arguments) {
          throw jit_amp::diagnostic(jit_amp::diagnostic_of_code(code), node, arguments);
        });
}

// jit_amp.script, install and the decorators: what runs in process.
void bind_scripting(py::module_& m) {
  m.def("take_turn", &jit_amp::take_turn);
  m.def("leave_turn", &jit_amp::leave_turn);
  py::class_<jit_amp::CompiledFunction>(m, "CompiledFunction")
      .def_readonly("qualified_name", &jit_amp::CompiledFunction::qualified_name)
      .def_readonly("arguments", &jit_amp::CompiledFunction::arguments)
      .def_property_readonly(
          "texts", [](const jit_amp::CompiledFunction& all) { return as_python(all.texts); })
      .def_property_readonly(
          "writes", [](const jit_amp::CompiledFunction& all) { return as_python(all.writes); })
      .def_property_readonly(
          "anew", [](const jit_amp::CompiledFunction& all) { return as_python(all.anew); });
  m.def("compiled_functions", [](const StrongFunctionPtr& function) {
    return jit_amp::compiled_functions(torch::jit::toGraphFunction(*function.function_));
  });
  m.def("compiled_functions",
        [](const Module& module) { return jit_amp::compiled_functions(module); });
  m.def("attribute_type", &jit_amp::attribute_type);
  // Whether it is right as it is: lowered before, or without scopes, and served now.
  m.def("leave_function", [](const StrongFunctionPtr& function) {
    auto& graph_function = torch::jit::toGraphFunction(*function.function_);
    return jit_amp::HasScopes()(graph_function)
               ? jit_amp::Program::behind(graph_function) != nullptr
               : jit_amp::serve_ambient(graph_function);
  });
  m.def("lower_where_it_is", [](const Module& module) {
    return warning_in_python([&] { return jit_amp::lower_where_it_is(module); });
  });
  // Of each of the types of modules.
  m.def("have_scopes", [](const std::vector<c10::ClassTypePtr>& types) {
    jit_amp::HasScopes has_scopes;
    std::vector<bool> result;
    for (const auto& type : types) {
      result.push_back(has_scopes(*type));
    }
    return result;
  });
  m.def("can_serve", &jit_amp::can_serve);
  m.def("lower_type", [](const c10::ClassTypePtr& type) { jit_amp::lower_type(*type); });
  m.def("object_has_scopes",
        [](const torch::jit::Object& object) { return jit_amp::HasScopes()(*object.type()); });
  m.def("has_scopes", [](const Module& module) { return jit_amp::HasScopes()(module); });
  m.def("has_scopes", [](const StrongFunctionPtr& function) {
    return jit_amp::HasScopes()(torch::jit::toGraphFunction(*function.function_));
  });
  m.def("lower_function", [](const StrongFunctionPtr& function) {
    return warning_in_python([&] { return jit_amp::lowered_copy(function); });
  });
  m.def("lower_module", [](const Module& module) {
    return warning_in_python([&] { return jit_amp::lowered_copy(module); });
  });
  const auto pooled = [](std::shared_ptr<torch::jit::Graph> graph) {  // for readers
    torch::jit::ConstantPooling(graph);
    return graph;
  };
  m.def("inline_sources",
        [](const std::shared_ptr<torch::jit::Graph>& graph) { jit_amp::inline_sources(*graph); });
  m.def("lowered_graph", [pooled](const StrongFunctionPtr& function, bool cpu, bool cuda) {
    return pooled(warning_in_python([&] {
      return jit_amp::lowered_graph(torch::jit::toGraphFunction(*function.function_), nullptr,
                                    {cpu, cuda});
    }));
  });
  m.def("lowered_method_graph",
        [](const Module& module, const std::string& method, bool cpu, bool cuda) {
          auto& function = torch::jit::toGraphFunction(module.get_method(method).function());
          return warning_in_python(
              [&] { return jit_amp::lowered_graph(function, module._ivalue(), {cpu, cuda}); });
        });
}

// Scopes around whole functions, and functions that leave scopes out.
void bind_wrapping(py::module_& m) {
  m.def("wrap_method", [](const c10::ClassTypePtr& type, const std::string& name,
                          const std::shared_ptr<torch::jit::Graph>& pattern,
                          const std::vector<PythonScope>& scopes) {
    auto* method = type->findMethod(name);
    auto& function = torch::jit::toGraphFunction(method ? *method : *type->findHook(name));
    function.ensure_defined();
    jit_amp::wrap(*function.graph(), *pattern, around(scopes));
  });
  m.def("wrapped_function", [](const StrongFunctionPtr& function,
                               const std::shared_ptr<torch::jit::Graph>& pattern,
                               const std::vector<PythonScope>& scopes) {
    auto copy = jit_amp::copied(function);
    jit_amp::wrap(*torch::jit::toGraphFunction(*copy.function_).graph(), *pattern, around(scopes));
    return copy;
  });
  m.def("own_copy", &jit_amp::own_copy);
  // Of a module of its own.
  m.def("wrap_from_outside", [](const Module& module, const std::vector<std::string>& methods,
                                const std::shared_ptr<torch::jit::Graph>& pattern,
                                const std::vector<PythonScope>& scopes) {
    jit_amp::wrap_from_outside(module, methods, *pattern, around(scopes));
  });
  // Both return whether there was a lowered function to ignore autocast.
  m.def("ignore_function",
        [](const StrongFunctionPtr& function, const std::shared_ptr<torch::jit::Graph>& pattern,
           bool ignore, bool scopes, bool widens) {
          const auto& graph_function = torch::jit::toGraphFunction(*function.function_);
          const bool known = jit_amp::Program::behind(graph_function) != nullptr;
          if (known) {
            jit_amp::ignore(graph_function.graph(), how(pattern, ignore, scopes, widens));
          }
          return known;
        });
  m.def("ignore_method", [](const Module& module, const std::string& method,
                            const std::shared_ptr<torch::jit::Graph>& pattern, bool ignore,
                            bool scopes, bool widens) {
    const auto* function = torch::jit::tryToGraphFunction(module.get_method(method).function());
    const bool known = function && jit_amp::Program::behind(*function);
    if (known) {
      jit_amp::ignore(module._ivalue(), method, how(pattern, ignore, scopes, widens));
    }
    return known;
  });
  // Without lines and operators, all of the method; else these of it, and of what it calls.
  m.def("keep_in_float32", [](const Module& module, const std::string& method,
                              const std::shared_ptr<torch::jit::Graph>& pattern,
                              const std::vector<std::tuple<std::string, size_t, size_t>>& lines,
                              const std::vector<std::string>& operators) {
    jit_amp::Ignoring how{pattern, /*scopes=*/true, /*widens=*/true};
    for (const auto& [file, first, last] : lines) {
      how.kept.lines.push_back({file, first, last});
    }
    how.kept.operators = operators;
    jit_amp::ignore(module._ivalue(), method, how);
  });
  m.def("copy_ignored",
        [](const Module& from, const Module& to) { jit_amp::copy_ignored(from, to); });
  m.def("forget_ignored", &jit_amp::forget_ignored);
}

// A dtype, and examples as the module takes them.
using Io = std::pair<at::ScalarType, std::vector<py::tuple>>;

std::optional<jit_amp::FreezeIo> io_of(const Module& module, const std::optional<Io>& io) {
  return io ? std::optional(jit_amp::FreezeIo{io->first, stacks_of(module, io->second)})
            : std::nullopt;
}

// jit_amp.freeze and jit_amp.export.
void bind_freezing(py::module_& m) {
  // What is to be done to a module without scopes, which PyTorch's own freezing takes.
  m.def("mend_frozen_by_pytorch", [](const Module& module, const std::string& target) {
    jit_amp::mend_frozen_by_pytorch(module, jit_amp::target_named(target));
  });
  m.def("check_examples", [](const Module& module, const std::vector<py::tuple>& examples) {
    (void)stacks_of(module, examples);
  });
  m.def("frozen_by_pytorch",
        [](const Module& module, const std::vector<std::string>& preserved_attrs,
           const std::optional<Io>& io) {
          return jit_amp::frozen_by_pytorch(module, preserved_attrs, io_of(module, io));
        });
  m.def("freeze_module", [](const Module& module, const std::vector<std::string>& preserved_attrs,
                            const std::vector<py::tuple>& examples, const std::string& target,
                            bool check_inputs, const std::optional<Io>& io) {
    return warning_in_python([&] {
      return jit_amp::freeze(module, preserved_attrs, stacks_of(module, examples),
                             {jit_amp::target_named(target), check_inputs, io_of(module, io)});
    });
  });
  // Makes the submodule by `script(weights, plans)`, which is not to keep the lists that it is
  // given.
  m.def("pack_weights", [](const Module& frozen, const std::vector<py::tuple>& examples,
                           const py::function& script) {
    jit_amp::pack(frozen, stacks_of(frozen, examples), [&](auto weights, const auto& plans) {
      return py::cast<Module>(script(std::move(weights), plans));
    });
  });
  m.def("facts", [](const Module& module, const std::vector<py::tuple>& examples) {
    return warning_in_python(
        [&] { return jit_amp::known_graph(module, stacks_of(module, examples)); });
  });
  m.def("interpretable_graph", [](const StrongFunctionPtr& function) {
    return warning_in_python([&] {
      return jit_amp::interpretable_graph(torch::jit::toGraphFunction(*function.function_),
                                          nullptr);
    });
  });
  m.def("interpretable_graph", [](const Module& module, const std::string& method) {
    auto& function = torch::jit::toGraphFunction(module.get_method(method).function());
    return warning_in_python(
        [&] { return jit_amp::interpretable_graph(function, module._ivalue()); });
  });
  m.def("hidden_graph", &jit_amp::hidden_graph);
  // What autocast for the device does to the node's operator, where it is on.
  m.def("policy_of", [](const torch::jit::Node* node, const std::string& device) {
    return jit_amp::name_of(jit_amp::policy_of(node, c10::Device(device).type()));
  });
  // Of an operator by its name and overload; None where there is no such operator.
  m.def("policy_of_operator", [](const std::string& overload, const std::string& device) {
    const auto handle = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(overload));
    return handle ? std::optional<std::string>(jit_amp::name_of(
                        jit_amp::policy_of(handle->schema(), c10::Device(device).type())))
                  : std::nullopt;
  });
}

// jit_amp.trace.
void bind_tracing(py::module_& m) {
  py::class_<jit_amp::TraceRecording>(m, "TraceRecording")
      .def(py::init<>())
      .def("stop", &jit_amp::TraceRecording::stop)
      .def("check", &jit_amp::TraceRecording::check);
  m.def("record_enter", [](const PythonScope& scope, bool dtype_given, const std::string& file,
                           size_t line, const std::string& text) {
    auto recorded = around({scope})[0];
    recorded.where = torch::jit::SourceRange(std::make_shared<torch::jit::Source>(text, file, line),
                                             0, text.size());
    return jit_amp::record_enter(recorded, dtype_given);
  });
  m.def("record_exit", [](int64_t scope, const PythonScope& before) {
    jit_amp::record_exit(scope, around({before})[0]);
  });
  m.def("restore_function",
        [](const StrongFunctionPtr& function, const std::shared_ptr<torch::jit::Graph>& pattern,
           const std::vector<PythonScope>& scopes) {
          const auto graph = torch::jit::toGraphFunction(*function.function_).graph();
          jit_amp::restore(graph, *pattern);
          jit_amp::write_numbers(*graph);  // the trace may be saved
          jit_amp::wrap(*graph, *pattern, around(scopes));
        });
  m.def("restore_module",
        [](const Module& module, const std::shared_ptr<torch::jit::Graph>& pattern,
           const std::vector<std::string>& methods, const std::vector<PythonScope>& scopes) {
          for (const GraphFunction* function : jit_amp::functions_of(module)) {
            jit_amp::restore(function->graph(), *pattern);
            jit_amp::write_numbers(*function->graph());
          }
          for (const std::string& method : methods) {
            auto& function = torch::jit::toGraphFunction(module.get_method(method).function());
            jit_amp::wrap(*function.graph(), *pattern, around(scopes));
          }
        });
}

// jit_amp.explain.
void bind_explaining(py::module_& m) {
  const auto explained = [](GraphFunction& function, const torch::jit::ObjectPtr& self,
                            const std::vector<torch::jit::Stack>& runs,
                            jit_amp::ExplainOptions at) {
    const auto found = [&] {
      const py::gil_scoped_release released;
      return jit_amp::explain(function, self, runs, at);
    }();
    return as_python(found);
  };
  m.def("copied_module", [](const Module& module) {
    return Module(jit_amp::Copies().of(module._ivalue()).toObject());
  });
  m.def("explain_method",
        [explained](const Module& module, const std::string& method,
                    const std::vector<py::tuple>& runs, bool numerics, bool gradients) {
          auto& function = torch::jit::toGraphFunction(module.get_method(method).function());
          return explained(function, module._ivalue(), stacks_of(module, runs, method),
                           {numerics, gradients});
        });
  m.def("explain_function", [explained](const StrongFunctionPtr& function,
                                        const std::vector<py::tuple>& runs, bool numerics,
                                        bool gradients) {
    auto& source = torch::jit::toGraphFunction(*function.function_);
    std::vector<torch::jit::Stack> stacks;
    for (const py::tuple& arguments : runs) {
      stacks.push_back(torch::jit::createStackForSchema(
          source.getSchema(), torch::jit::tuple_slice(arguments), py::kwargs(), std::nullopt));
    }
    return explained(source, nullptr, stacks, {numerics, gradients});
  });
  py::class_<jit_amp::Watch>(m, "Watch")
      .def(py::init([](const py::function& place, bool numerics, bool gradients) {
             const auto call = [place] {
               const py::gil_scoped_acquire gil;
               return place().cast<int64_t>();
             };
             return std::make_unique<jit_amp::Watch>(call,
                                                     jit_amp::ExplainOptions{numerics, gradients});
           }),
           py::arg("place"), py::kw_only(), py::arg("numerics"), py::arg("gradients"))
      .def("start", &jit_amp::Watch::start)
      .def("stop", &jit_amp::Watch::stop, py::arg("failed"))
      .def("note_gradients", &jit_amp::Watch::note_gradients,
           py::call_guard<py::gil_scoped_release>())
      .def("failed", [](jit_amp::Watch& watch) { return as_python(watch.failed()); })
      .def("maker_of", &jit_amp::Watch::maker_of)
      .def("protect", &jit_amp::Watch::protect)
      .def("restore", &jit_amp::Watch::restore)
      .def("seen", [](jit_amp::Watch& watch) {
        py::list rows;
        for (const auto& each : watch.seen()) {
          rows.append(py::make_tuple(as_python(each.operated), each.place, each.is_backward));
        }
        return rows;
      });
}

// What stands in place of PyTorch's for a while.
void bind_replacements(py::module_& m) {
  using jit_amp::AtExit, jit_amp::Hold, jit_amp::Replaced, jit_amp::Replacements;
  py::class_<Replaced, std::shared_ptr<Replaced>>(m, "Replaced")
      .def(py::init<py::object, py::str, py::object>())
      .def_property_readonly("is_held", &Replaced::is_held)
      .def_property_readonly("original", &Replaced::original);
  py::class_<jit_amp::KeptOperators>(m, "KeptOperators")
      .def(py::init<std::vector<std::string>>())
      .def("is_entered", &jit_amp::KeptOperators::is_entered)
      .def("__enter__", &jit_amp::KeptOperators::enter)
      .def("__exit__",
           [](const jit_amp::KeptOperators& operators, const py::args&) { operators.exit(); });
  m.def("running_operator", &jit_amp::running_operator);
  py::class_<Replacements>(m, "Replacements")
      .def(py::init<std::vector<std::shared_ptr<Replaced>>>())
      .def("__enter__", &Replacements::enter)
      .def("__exit__",
           [](const Replacements& replacements, const py::args&) { replacements.exit(); });
  py::class_<Hold>(m, "Hold")
      .def(py::init<Replacements>())
      .def("__enter__", &Hold::begin_block)
      .def("__exit__", [](Hold& hold, const py::args&) { hold.release(); })
      .def("release", &Hold::release)
      .def_property_readonly("is_released", &Hold::is_released)
      .def_property_readonly("is_anothers", &Hold::is_anothers);
  py::class_<AtExit>(m, "AtExit")
      .def(py::init<std::vector<py::object>, py::object>(), py::arg("calls"),
           py::arg("begin") = py::none())
      .def("__enter__", &AtExit::enter)
      .def("__exit__", [](const AtExit& calls, const py::args&) { calls.exit(); });
  m.def("forget_other_threads", &Replaced::forget_other_threads);
}

// Files that are written.
void bind_archives(py::module_& m) {
  using jit_amp::Output;
  py::class_<Output>(m, "Output")
      .def(py::init<py::object>())
      .def("write",
           [](Output& output, const py::buffer& data) {
             const auto info = data.request();
             return output.write(data, info.size * info.itemsize);
           })
      .def("check", &Output::check);
  m.def(
      "save_module",
      [](const Module& module, const py::object& write, bool is_lite) {
        jit_amp::save_module(module, write, is_lite);
      },
      py::arg("module"), py::arg("write"), py::kw_only(), py::arg("is_lite"));
}

// jit_amp.policy.
void bind_policies(py::module_& m) {
  m.def("state_policy",
        [](const std::string& name, const std::string& device, const std::string& policy) {
          jit_amp::state_policy(name, c10::Device(device).type(), jit_amp::policy_named(policy));
        });
  m.def("forget_policy", [](const std::string& name, const std::string& device) {
    const auto policy = jit_amp::forget_policy(name, c10::Device(device).type());
    return policy ? std::optional<std::string>(jit_amp::name_of(*policy)) : std::nullopt;
  });
  m.def("stated_policy", [](const std::string& name, const std::string& device) {
    const auto policy =
        jit_amp::stated_for(torch::jit::parseName(name), c10::Device(device).type());
    return policy ? std::optional<std::string>(jit_amp::name_of(*policy)) : std::nullopt;
  });
  m.def("policy_table", [](const std::string& device) {
    py::dict table;
    for (const auto& [overload, policy] : jit_amp::policy_table(c10::Device(device).type())) {
      table[py::str(overload)] = jit_amp::name_of(policy);
    }
    return table;
  });
  m.def("observed_row", &jit_amp::observed_row);
  m.def("operator_traits", [] {
    using Row = std::tuple<const char*, const char*, const char*, const char*, const char*, bool>;
    return std::vector<Row>{
#define TRAITS(name, group, memory, strides, fused, profiled) \
  {name, #group, #memory, #strides, fused, profiled},
#include "analysis/traits.inc"
#undef TRAITS
    };
  });
  m.def("reach", &jit_amp::reach);
}

// For tests, and for those who look for what a pass does (docs/internals.md).
void bind_tests(py::module_& m) {
  m.def("run_pass", [](const std::string& pass, const std::shared_ptr<torch::jit::Graph>& graph,
                       const std::map<std::string, std::optional<at::ScalarType>>& entry,
                       bool stock) {
    jit_amp::Context context;
    context.graph = graph;
    context.entry = entry_state(entry);
    context.destination = stock ? jit_amp::Destination::stock : jit_amp::Destination::in_process;
    context.target = stock ? jit_amp::Target::server : jit_amp::Target::portable;
    return jit_amp::run_alone(pass, context);
  });
  m.def("facts_of", &jit_amp::facts_of);
  m.def("flattened", [](const StrongFunctionPtr& function, const std::string& last) {
    return jit_amp::flattened(torch::jit::toGraphFunction(*function.function_), nullptr, last);
  });
  m.def("flattened", [](const Module& module, const std::string& last) {
    auto& function = torch::jit::toGraphFunction(module.get_method("forward").function());
    return jit_amp::flattened(function, module._ivalue(), last);
  });
  m.def("specialized", &jit_amp::specialized);
  m.def("own_constants", &jit_amp::own_constants);
  m.def("scopes_of", [](const std::shared_ptr<torch::jit::Graph>& graph,
                        const std::map<std::string, std::optional<at::ScalarType>>& entry) {
    return jit_amp::scopes_of(graph, entry_state(entry));
  });
  m.def("verify", [](const std::shared_ptr<torch::jit::Graph>& graph, const std::string& phase) {
    jit_amp::verify(*graph, jit_amp::phase_named(phase), "a test");
  });
  m.def("pass_times", &jit_amp::pass_times);
  m.def("pipelines", [] {
    using Row = std::tuple<std::string, std::string, std::string, std::string, std::string, bool>;
    std::vector<std::tuple<std::string, bool, std::vector<Row>>> tables;
    for (const auto& table : jit_amp::pipelines()) {
      std::vector<Row> rows;
      for (const auto& each : table.passes) {
        rows.emplace_back(each.name, each.needs, each.gives, each.kind, each.targets,
                          each.reads_facts);
      }
      tables.emplace_back(table.name, table.is_for_modules, std::move(rows));
    }
    return tables;
  });
  m.def("passes", [] {
    std::vector<std::tuple<std::string, std::string, std::string>> rows;
    for (const auto& each : jit_amp::pass_summaries()) {
      rows.emplace_back(each.folder, each.name, each.what);
    }
    return rows;
  });
  m.def("quirks", [] {
    using Row =
        std::tuple<std::string, std::string, std::string, std::string, std::string, std::string>;
    std::vector<Row> rows;
    for (const auto& each : jit_amp::quirks()) {
      rows.emplace_back(each.name, each.file, each.fault, each.instead, each.first_release,
                        each.last_release);
    }
    return rows;
  });
  m.def("thresholds", [] {
    std::map<std::string, int64_t> values;
    for (const auto& each : jit_amp::thresholds()) {
      values[each.name] = each.value;
    }
    return values;
  });
}

PYBIND11_MODULE(_C, m) {
  bind_errors(m);
  bind_scripting(m);
  bind_wrapping(m);
  bind_freezing(m);
  bind_tracing(m);
  bind_explaining(m);
  bind_replacements(m);
  bind_archives(m);
  bind_policies(m);
  bind_tests(m);
}

}  // namespace
