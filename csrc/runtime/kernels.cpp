#include "runtime/kernels.h"
#include "core/dialect.h"

#include <ATen/ATen.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/library.h>

#include "core/ambient.h"
#include "core/devices.h"
#include "core/error.h"

namespace jit_amp {
namespace {

using at::ScalarType;
using at::Tensor;
using std::optional;
using Dtype = optional<ScalarType>;

// Whether eager would keep the cast of this tensor in its cache (cached_cast in
// ATen/autocast_mode.cpp).
bool is_cached(const Tensor& x, ScalarType target) {
  return target != at::kFloat && x.scalar_type() == at::kFloat && x.requires_grad() &&
         x.is_leaf() && !x.is_view() && at::autocast::is_autocast_cache_enabled();
}

c10::DeviceType device_named(const std::string& name) { return c10::Device(name).type(); }

Tensor cast_on(c10::DeviceType accelerator, const Tensor& x, Dtype cpu, Dtype other) {
  const auto target = at::autocast::is_eligible(x, at::kCPU)      ? cpu
                      : at::autocast::is_eligible(x, accelerator) ? other
                                                                  : std::nullopt;
  if (!target || *target == x.scalar_type()) {
    return x;
  }
  // Casts in eager's cache require grad under no_grad too, and matmul takes another kernel then.
  const at::AutoGradMode mode(at::GradMode::is_enabled() || is_cached(x, *target));
  return x.to(*target);
}

Tensor cast(const Tensor& x, Dtype cpu, Dtype cuda) { return cast_on(at::kCUDA, x, cpu, cuda); }

// For the accelerator that is named.
Tensor cast_named(const Tensor& x, Dtype cpu, Dtype other, std::string accelerator) {
  return cast_on(device_named(accelerator), x, cpu, other);
}

// `kCast` of an optional tensor, and of each tensor of a list.
template <auto kCast, typename... To>
optional<Tensor> of_optional(const optional<Tensor>& x, To... to) {
  return x ? optional(kCast(*x, to...)) : std::nullopt;
}

template <auto kCast, typename... To>
std::vector<Tensor> of_list(at::TensorList xs, To... to) {
  std::vector<Tensor> result;
  result.reserve(xs.size());
  for (const Tensor& x : xs) {
    result.push_back(kCast(x, to...));
  }
  return result;
}

// The rule and the errors of promote_type in ATen/autocast_mode.h.
Dtype widest(at::TensorList xs, Dtype lower, std::string device) {
  if (!lower) {
    return std::nullopt;
  }
  const auto type = c10::Device(device).type();
  ScalarType current = *lower;
  for (const Tensor& x : xs) {
    TORCH_CHECK(current != at::kDouble, "promote type is double in at::autocast::prioritize");
    if (!at::autocast::is_autocast_eligible(x, type) || x.scalar_type() == at::kDouble) {
      continue;
    }
    if (current == at::kFloat || x.scalar_type() == at::kFloat) {
      current = at::kFloat;
    } else {
      TORCH_CHECK(current == *lower && x.scalar_type() == *lower,
                  "Unexpected floating ScalarType in at::autocast::prioritize");
    }
  }
  return current;
}

Dtype opt_dtype_named(const Tensor& x, Dtype dtype, bool enabled, std::string accelerator) {
  const bool eligible = enabled && at::autocast::is_eligible(x, device_named(accelerator));
  return dtype ? dtype : eligible ? optional(at::kFloat) : std::nullopt;
}

Dtype opt_dtype(const Tensor& x, Dtype dtype, bool cuda) {
  return opt_dtype_named(x, dtype, cuda, "cuda");
}

TORCH_LIBRARY(jit_amp, m) {
  m.def("cast(Tensor(a) x, ScalarType? cpu, ScalarType? cuda) -> Tensor(a)", &cast);
  m.def("cast.optional(Tensor(a)? x, ScalarType? cpu, ScalarType? cuda) -> Tensor(a)?",
        &of_optional<cast, Dtype, Dtype>);
  m.def("cast.list(Tensor[] x, ScalarType? cpu, ScalarType? cuda) -> Tensor[]",
        &of_list<cast, Dtype, Dtype>);
  m.def("cast.named(Tensor(a) x, ScalarType? cpu, ScalarType? other, str accelerator) -> Tensor(a)",
        &cast_named);
  m.def(
      "cast.named_optional(Tensor(a)? x, ScalarType? cpu, ScalarType? other, str accelerator) -> "
      "Tensor(a)?",
      &of_optional<cast_named, Dtype, Dtype, std::string>);
  m.def(
      "cast.named_list(Tensor[] x, ScalarType? cpu, ScalarType? other, str accelerator) -> "
      "Tensor[]",
      &of_list<cast_named, Dtype, Dtype, std::string>);
  m.def("widest(Tensor[] xs, ScalarType? lower, str device) -> ScalarType?", &widest);
  m.def("opt_dtype(Tensor x, ScalarType? dtype, bool cuda) -> ScalarType?", &opt_dtype);
  m.def(
      "opt_dtype.named(Tensor x, ScalarType? dtype, bool enabled, str accelerator) -> ScalarType?",
      &opt_dtype_named);
}

// torch.func's transforms look into what is made of other operators only if they are told to.
TORCH_LIBRARY_IMPL(jit_amp, FuncTorchBatchedDecomposition, m) {
  m.impl("cast", &cast);
  m.impl("cast.optional", &of_optional<cast, Dtype, Dtype>);
  m.impl("cast.list", &of_list<cast, Dtype, Dtype>);
  m.impl("cast.named", &cast_named);
  m.impl("cast.named_optional", &of_optional<cast_named, Dtype, Dtype, std::string>);
  m.impl("cast.named_list", &of_list<cast_named, Dtype, Dtype, std::string>);
  m.impl("widest", &widest);
  m.impl("opt_dtype", &opt_dtype);
  m.impl("opt_dtype.named", &opt_dtype_named);
}

using torch::jit::Node;
using torch::jit::Operation;
using torch::jit::Operator;
using torch::jit::Stack;

// What is raised where a scope's device, known at run time only, is none that it can be for.
void check_device(const std::string& name, const std::string& accelerator) {
  TORCH_CHECK(name == "cpu" || name == accelerator,
              "jit_amp: a device that torch.autocast is for, or is asked about, and that is known "
              "at run time can be 'cpu' or '",
              accelerator, "', not '", name, "'");
}

Operation make_scoped(const Node* node) {
  std::vector<c10::DeviceType> devices;
  for (const std::string& name : node->ss(ops::devices)) {
    devices.push_back(c10::Device(name).type());
  }
  const auto cache = node->hasAttribute(ops::cache_enabled)
                         ? optional<bool>(node->i(ops::cache_enabled) != 0)
                         : std::nullopt;
  torch::jit::Code code(node->g(torch::jit::attr::Subgraph), "jit_amp_scoped");
  const size_t inputs = node->inputs().size();
  return [=](Stack& stack) {
    std::vector<AutocastSetting> settings;
    const size_t state = 2 * devices.size();
    const auto arguments = stack.end() - static_cast<std::ptrdiff_t>(inputs);
    for (size_t i = 0; i < devices.size(); ++i) {
      settings.push_back({devices[i], (arguments + 2 * i)->toBool(),
                          static_cast<ScalarType>((arguments + 2 * i + 1)->toInt())});
    }
    stack.erase(arguments, arguments + static_cast<std::ptrdiff_t>(state));
    const AutocastGuard scope(std::move(settings), cache);
    run_here(code, stack, inputs - state);
  };
}

Operation make_deferred(const Node* node) {
  const int64_t value = node->i(torch::jit::attr::value);
  return [value](Stack& stack) { stack.emplace_back(value); };
}

Operation make_completed(const Node* node) {
  const auto type = node->output()->type()->expectRef<c10::FutureType>().getElementType();
  return [type](Stack& stack) {
    auto future = c10::make_intrusive<c10::ivalue::Future>(type);
    future->markCompleted(torch::jit::pop(stack));
    stack.emplace_back(std::move(future));
  };
}

const torch::jit::RegisterOperators kernel_operators({
    Operator(
        "jit_amp::ambient_dtype(str device) -> int",
        [](Stack& stack) {
          const auto device = c10::Device(torch::jit::pop(stack).toStringRef()).type();
          const auto dtype = at::autocast::get_autocast_dtype(device);
          TORCH_CHECK(
              device == c10::DeviceType::CUDA || dtype == at::kBFloat16 || dtype == at::kHalf,
              "jit_amp: a scripted torch.autocast(\"", c10::DeviceTypeName(device, true),
              "\") without a dtype takes the caller's, which is ", dtype,
              ": give the scope a dtype, bfloat16 or float16");
          stack.emplace_back(static_cast<int64_t>(dtype));
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::fail(str message) -> ()",
        [](Stack& stack) { TORCH_CHECK(false, "jit_amp: ", torch::jit::pop(stack).toStringRef()); },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::unchanged(Any now, Any then, str path) -> ()",
        [](Stack& stack) {
          const auto path = torch::jit::pop(stack).toStringRef();
          const auto then = torch::jit::pop(stack);
          if (torch::jit::pop(stack) != then) {  // Python code that the same call runs assigned it
            throw in_interpreter(diagnostic(Diagnostic::assigned_attribute, nullptr, {path}));
          }
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::carried(t(a -> *) x) -> t(*)", [](Stack&) {},
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(
        "jit_amp::block_done() -> ()", [](Stack&) {}, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::enter_scope(str device, str[] devices, bool[] enabled, int[] dtypes, bool? "
        "cache_enabled) -> ()",
        [](Stack& stack) {
          const auto cache = torch::jit::pop(stack).toOptional<bool>();
          const auto dtypes = torch::jit::pop(stack).toIntVector();
          const auto enabled = torch::jit::pop(stack).toBoolList();
          const auto devices = torch::jit::pop(stack).toListRef().vec();
          const auto device = torch::jit::pop(stack).toStringRef();
          for (size_t i = 0; i < devices.size(); ++i) {
            if (devices[i].toStringRef() == device) {
              enter_scope(
                  {c10::Device(device).type(), enabled[i], static_cast<ScalarType>(dtypes[i])},
                  cache);
              return;
            }
          }
          check_device(device, c10::DeviceTypeName(accelerator_here(), /*lower_case=*/true));
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::exit_scope() -> ()", [](Stack&) { exit_scope(); },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::known_device(str name) -> ()",
        [](Stack& stack) { check_device(torch::jit::pop(stack).toStringRef(), "cuda"); },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::known_device.named(str name, str accelerator) -> ()",
        [](Stack& stack) {
          const auto accelerator = torch::jit::pop(stack).toStringRef();
          check_device(torch::jit::pop(stack).toStringRef(), accelerator);
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    // Questions about autocast's state that eager can ask and TorchScript has no operator for. They
    // answer the dispatcher's state; lowering puts the scope's in their place.
    Operator(
        "aten::is_autocast_enabled.device_type(str device_type) -> bool",
        [](Stack& stack) {
          const auto device = c10::Device(torch::jit::pop(stack).toStringRef()).type();
          stack.emplace_back(at::autocast::is_autocast_enabled(device));
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "aten::get_autocast_cpu_dtype() -> int",
        [](Stack& stack) {
          stack.emplace_back(static_cast<int64_t>(at::autocast::get_autocast_dtype(at::kCPU)));
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "aten::get_autocast_gpu_dtype() -> int",
        [](Stack& stack) {
          stack.emplace_back(static_cast<int64_t>(at::autocast::get_autocast_dtype(at::kCUDA)));
        },
        c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(
        "jit_amp::detached(Tensor(a) x) -> Tensor(a)",
        [](Stack& stack) { stack.emplace_back(torch::jit::pop(stack).toTensor().detach()); },
        c10::AliasAnalysisKind::FROM_SCHEMA),
    Operator(ops::completed, make_completed, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(ops::deferred, make_deferred, c10::AliasAnalysisKind::CONSERVATIVE),
    Operator(ops::scoped, make_scoped, c10::AliasAnalysisKind::PURE_FUNCTION),
    Operator(ops::scoped_effect, make_scoped, c10::AliasAnalysisKind::CONSERVATIVE),
});

}  // namespace

void run_here(const torch::jit::Code& code, Stack& stack, size_t inputs) {
  Stack inner(std::make_move_iterator(stack.end() - static_cast<std::ptrdiff_t>(inputs)),
              std::make_move_iterator(stack.end()));
  torch::jit::drop(stack, inputs);
  torch::jit::InterpreterState(code).run(inner);
  std::move(inner.begin(), inner.end(), std::back_inserter(stack));
}

}  // namespace jit_amp
