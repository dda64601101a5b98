// jit_amp's own operators. They exist in process only: in a graph that is to be frozen, legalize
// replaces them by stock operators, or refuses; jit_amp/_export/interpreter/dialect.py knows
// them, for export.
//
//   jit_amp::cast(Tensor(a) x, ScalarType? cpu, ScalarType? cuda) -> Tensor(a)
//       x in the dtype given for its device, if it is eligible (floating point, not float64); else
//       x itself. Overloads for Tensor? and Tensor[].
//       Overloads with a `str accelerator` at the end, here and below, are for another than CUDA.
//   jit_amp::widest(Tensor[] xs, ScalarType? lower, str device) -> ScalarType?
//       The dtype that the promote policy casts to, or its error; None if `lower` is.
//   jit_amp::opt_dtype(Tensor x, ScalarType? dtype, bool cuda) -> ScalarType?
//       dtype if given, else float32 if x is eligible on CUDA and autocast is on, else None.
//   jit_amp::known_device(str name) -> ()
//       Raises where a scope's device, known at run time only, is neither "cpu" nor the
//       accelerator.
//   jit_amp::fail(str message) -> ()
//       Raises a RuntimeError, where eager's torch.autocast does.
//   jit_amp::unchanged(Any now, Any then, str path) -> ()
//       Raises where an attribute that a scope rests on has changed since the call began.
//   jit_amp::carried(t(a -> *) x) -> t(*)
//       x itself; core/loops.h.
//   jit_amp::block_done() -> ()
//       Nothing; passes/lowering/for_interpreter.h.
//   jit_amp::completed(t result) -> Future(t)
//       A task's, where the task runs at once: passes/lowering/run_tasks.h.
//   jit_amp::ambient_dtype(str device) -> int
//       torch.get_autocast_dtype(device) in the calling thread.
//   jit_amp::enter_scope(str device, str[] devices, bool[] enabled, int[] dtypes,
//                        bool? cache_enabled) -> ()
//       torch.autocast's __enter__ for the device, with what stands beside its name.
//   jit_amp::exit_scope() -> ()
//       The __exit__ of the scope that was entered last.
//   jit_amp::explain_begin[value=…](inputs…) -> (), jit_amp::explain_end[value=…](results…) -> ()
//       Around the operator of that number, where runtime/explain.h looks at it.
//   jit_amp::program(Program program, inputs…) -> …
//       All of a lowered function: runtime/program.h.
//   jit_amp::deferred[value=…]() -> int
//       A constant that no pass folds, until legalize does.
//   jit_amp::detached(Tensor(a) x) -> Tensor(a)
//       x.detach(), which PyTorch's freezing is not to see; passes/quirks/freezing/keep_detach.h.
//   jit_amp::scoped[Subgraph=…, devices=…](enabled…, dtype…, inputs…) -> …
//       Runs the subgraph, one opaque node without side effects, under autocast's own dispatch. The
//       state is among its operands, so equal nodes in different scopes are not equal.
//   jit_amp::scoped_effect[Subgraph=…, devices=…](enabled…, dtype…, inputs…) -> …
//       The same for a node that may write, return a view, or call out; no pass moves or merges it.
#pragma once

#include <c10/core/Device.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

#include <string>

namespace jit_amp::ops {

inline const c10::Symbol cast = c10::Symbol::fromQualString("jit_amp::cast");
inline const c10::Symbol widest = c10::Symbol::fromQualString("jit_amp::widest");
inline const c10::Symbol opt_dtype = c10::Symbol::fromQualString("jit_amp::opt_dtype");
inline const c10::Symbol known_device = c10::Symbol::fromQualString("jit_amp::known_device");
inline const c10::Symbol fail = c10::Symbol::fromQualString("jit_amp::fail");
inline const c10::Symbol unchanged = c10::Symbol::fromQualString("jit_amp::unchanged");
inline const c10::Symbol carried = c10::Symbol::fromQualString("jit_amp::carried");
inline const c10::Symbol block_done = c10::Symbol::fromQualString("jit_amp::block_done");
inline const c10::Symbol completed = c10::Symbol::fromQualString("jit_amp::completed");
inline const c10::Symbol ambient_dtype = c10::Symbol::fromQualString("jit_amp::ambient_dtype");
inline const c10::Symbol enter_scope = c10::Symbol::fromQualString("jit_amp::enter_scope");
inline const c10::Symbol exit_scope = c10::Symbol::fromQualString("jit_amp::exit_scope");
inline const c10::Symbol explain_begin = c10::Symbol::fromQualString("jit_amp::explain_begin");
inline const c10::Symbol explain_end = c10::Symbol::fromQualString("jit_amp::explain_end");
inline const c10::Symbol program = c10::Symbol::fromQualString("jit_amp::program");
inline const c10::Symbol deferred = c10::Symbol::fromQualString("jit_amp::deferred");
inline const c10::Symbol detached = c10::Symbol::fromQualString("jit_amp::detached");
inline const c10::Symbol scoped = c10::Symbol::fromQualString("jit_amp::scoped");
inline const c10::Symbol scoped_effect = c10::Symbol::fromQualString("jit_amp::scoped_effect");

// Attribute of `scoped`: the names of the devices whose state it sets. Its first inputs are then,
// per device, enabled (bool) and dtype (int).
inline const c10::Symbol devices = c10::Symbol::attr("devices");
// Attribute of `scoped` that may be absent: whether the weight cache is on.
inline const c10::Symbol cache_enabled = c10::Symbol::attr("cache_enabled");

// What tracing records (runtime/record.h): a scope is entered and left.
inline const c10::Symbol enter = c10::Symbol::fromQualString("jit_amp::enter");
inline const c10::Symbol exit = c10::Symbol::fromQualString("jit_amp::exit");
// Attributes of both: which enter an exit belongs to.
inline const c10::Symbol scope = c10::Symbol::attr("scope");
// Attributes of `enter`, and `cache_enabled` where the scope says it; `dtype_given` is false where
// the scope was made without a dtype.
inline const c10::Symbol device_type = c10::Symbol::attr("device_type");
inline const c10::Symbol dtype = c10::Symbol::attr("dtype");
inline const c10::Symbol dtype_given = c10::Symbol::attr("dtype_given");
inline const c10::Symbol enabled = c10::Symbol::attr("enabled");
// Attribute of an `enter` that autocast's kernel stands behind, or of a `_convolution`: the
// operator that the author called.
inline const c10::Symbol instead_of = c10::Symbol::attr("instead_of");
// Attribute of an `aten::to` that autocast put in, of a `jit_amp::cast` that it would put in for
// other operands, and of an `aten::_unwrap_optional` before one of the two: the number of that
// scope, or of_the_operator where the operator itself is what was recorded.
inline const c10::Symbol of_autocast = c10::Symbol::attr("of_autocast");
inline constexpr int64_t of_the_operator = -1;

// Whether the node is a query of autocast's state by an operator that jit_amp registers in `aten::`
// (runtime/kernels.cpp), and that no other process has.
inline bool is_query_of_ours(const torch::jit::Node* node) {
  const std::string name = node->kind().is_aten() ? node->kind().toUnqualString() : "";
  return name == "get_autocast_cpu_dtype" || name == "get_autocast_gpu_dtype" ||
         (name == "is_autocast_enabled" && !node->inputs().empty());
}

// The accelerator that a `cast`, `opt_dtype` or `known_device` is for.
inline c10::DeviceType accelerator_in(const torch::jit::Node* node) {
  const size_t first = node->kind() == known_device ? 1 : 3;
  return node->inputs().size() > first
             ? c10::Device(torch::jit::toIValue(node->input(first))->toStringRef()).type()
             : c10::DeviceType::CUDA;
}

inline bool is_scoped(const torch::jit::Node* node) {
  return node->kind() == scoped || node->kind() == scoped_effect;
}

}  // namespace jit_amp::ops
