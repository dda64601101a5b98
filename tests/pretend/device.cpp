// A device that exists in name: its tensors lie in CPU memory, its arithmetic is the CPU's, and its
// dispatch keys, and so its autocast, are those of DEVICE (CUDA, XPU, MPS, PrivateUse1).
//
// How: a boxed kernel for every operator. While it runs, the storages of its arguments say that
// they are the CPU's; the arguments are seen through tensors with the CPU's keys, the CPU's kernel
// runs, and what it leaves is given DEVICE's name and keys again. Views, writes in place and
// resizing need nothing more, because the storages are the same.
//
// Limits: one call at a time; no cuDNN; which operators DEVICE's own kernels call inside is not
// seen; one stream, one device; no sparse tensors; random numbers come from the CPU's generator;
// torch.load needs map_location="cpu" (torch.jit.load does not). Only for a PyTorch that has no
// kernels for DEVICE.
//
// Compiled and loaded by tests/pretend/__init__.py, before torch looks for its CUDA hooks.
#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/autocast_mode.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/detail/MPSHooksInterface.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/detail/XPUHooksInterface.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/library.h>

#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

namespace pretend {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

constexpr auto kType = c10::DeviceType::DEVICE;
const c10::Device here{kType, 0};
const c10::DispatchKeySet keys{c10::DispatchKey::DEVICE};

struct Guard : c10::impl::NoOpDeviceGuardImpl<kType> {
  c10::Device exchangeDevice(c10::Device) const override { return here; }
  c10::Device getDevice() const override { return here; }
  c10::Stream getStream(c10::Device) const noexcept override {
    return c10::Stream(c10::Stream::DEFAULT, here);
  }
  // All is done when the call returns.
  void record(void**, const c10::Stream&, c10::DeviceIndex, c10::EventFlag) const override {}
  void block(void*, const c10::Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  void destroyEvent(void*, c10::DeviceIndex) const noexcept override {}
};
const c10::impl::DeviceGuardImplRegistrar guard(kType, new Guard);

// What is allocated by the device's name alone: a storage.
struct Memory : c10::Allocator {
  c10::DataPtr allocate(size_t size) override {
    auto made = c10::GetDefaultCPUAllocator()->allocate(size);
    made.unsafe_set_device(here);
    return made;
  }
  void copy_data(void* to, const void* from, size_t size) const override {
    default_copy_data(to, from, size);
  }
};
Memory memory;
const bool has_memory = (c10::SetAllocator(kType, &memory), true);

// One call of the CPU's kernel.

void rename(const c10::Storage& storage, c10::Device device) {
  storage.unsafeGetStorageImpl()->_mutable_data_ptr_no_checks().unsafe_set_device(device);
}

Tensor seen_as(const Tensor& like, c10::DispatchKeySet with) {
  auto tensor =
      at::detail::make_tensor<c10::TensorImpl>(c10::Storage(like.storage()), with, like.dtype());
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(),
                                                      like.storage_offset());
  tensor._set_conj(like.is_conj());
  tensor._set_neg(like.is_neg());
  return tensor;
}

class Call {
 public:
  Call() = default;
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;
  ~Call() {
    for (const auto& storage : renamed_) {
      rename(storage, here);
    }
  }

  IValue to_cpu(const IValue& value) {
    if (value.isDevice() && value.toDevice().type() == kType) {
      return c10::Device(c10::kCPU);
    }
    return map(value, [this](const Tensor& t) { return cpu_of(t); });
  }

  // After the kernel: what it did to the sizes and storages of its arguments.
  void settle() {
    for (const auto& [ours, cpu] : seen_) {
      auto* impl = ours.unsafeGetTensorImpl();
      if (!ours.storage().is_alias_of(cpu.storage())) {
        renamed_.push_back(cpu.storage());
        impl->set_storage_keep_dtype(cpu.storage());
      }
      if (ours.sizes() != cpu.sizes() || ours.strides() != cpu.strides() ||
          ours.storage_offset() != cpu.storage_offset()) {
        impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      }
    }
  }

  IValue from_cpu(const IValue& value) {
    return map(value, [this](const Tensor& t) { return ours_of(t); });
  }

 private:
  template <typename F>
  static IValue map(const IValue& value, const F& one) {
    if (value.isTensor()) {
      return one(value.toTensor());
    }
    if (value.isTensorList()) {
      c10::List<Tensor> list;
      for (const Tensor& each : value.toTensorVector()) {
        list.push_back(one(each));
      }
      return list;
    }
    if (value.isOptionalTensorList()) {
      c10::List<std::optional<Tensor>> list;
      for (const std::optional<Tensor>& each : value.toOptionalTensorList()) {
        list.push_back(each ? std::optional(one(*each)) : std::nullopt);
      }
      return list;
    }
    return value;
  }

  Tensor cpu_of(const Tensor& t) {
    if (!t.defined() || t.layout() != at::kStrided) {
      return t;
    }
    if (t.device() != here) {
      if (t.device().is_cpu()) {
        others_.insert(t.storage().unsafeGetStorageImpl());
      }
      return t;
    }
    for (const auto& [ours, cpu] : seen_) {
      if (ours.is_same(t)) {
        return cpu;
      }
    }
    rename(t.storage(), c10::kCPU);
    renamed_.push_back(t.storage());
    seen_.emplace_back(t, seen_as(t, c10::DispatchKeySet(c10::DispatchKey::CPU)));
    return seen_.back().second;
  }

  Tensor ours_of(const Tensor& t) {
    if (!t.defined() || t.layout() != at::kStrided || !t.device().is_cpu() ||
        others_.count(t.storage().unsafeGetStorageImpl()) != 0) {
      return t;
    }
    for (const auto& [ours, cpu] : seen_) {
      if (cpu.is_same(t)) {
        return ours;
      }
    }
    rename(t.storage(), here);
    renamed_.push_back(t.storage());
    return seen_as(t, keys);
  }

  std::vector<std::pair<Tensor, Tensor>> seen_;  // ours, and as the CPU's kernel sees it
  std::vector<c10::Storage> renamed_;            // ours, that may say that they are the CPU's
  std::unordered_set<const void*> others_;       // storages of arguments that are the CPU's own
};

// One call at a time, as other threads may have the same tensors. A kernel may call others.
std::recursive_mutex& turn() {
  static auto& mutex = *new std::recursive_mutex;
  return mutex;
}

void run_on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
  const std::lock_guard<std::recursive_mutex> lock(turn());
  Call call;  // gives names back before the turn ends
  for (size_t i = stack->size() - op.schema().arguments().size(); i < stack->size(); ++i) {
    (*stack)[i] = call.to_cpu((*stack)[i]);
  }
  op.redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), stack);
  call.settle();
  for (size_t i = stack->size() - op.schema().returns().size(); i < stack->size(); ++i) {
    (*stack)[i] = call.from_cpu((*stack)[i]);
  }
}

// Memory of the CPU's allocator, also where a kernel resizes it later.
Tensor here_now(const Tensor& made) {
  rename(made.storage(), here);
  return seen_as(made, keys);
}

Tensor empty(at::IntArrayRef size, std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
             std::optional<at::Device>, std::optional<bool>,
             std::optional<at::MemoryFormat> format) {
  return here_now(at::detail::empty_cpu(
      size, dtype.value_or(at::get_default_dtype_as_scalartype()), false, format));
}

Tensor empty_strided(at::IntArrayRef size, at::IntArrayRef stride,
                     std::optional<at::ScalarType> dtype, std::optional<at::Layout>,
                     std::optional<at::Device>, std::optional<bool>) {
  return here_now(at::detail::empty_strided_cpu(
      size, stride, dtype.value_or(at::get_default_dtype_as_scalartype()), false));
}

Tensor& set_storage(Tensor& self, at::Storage source, int64_t offset, at::IntArrayRef size,
                    at::IntArrayRef stride) {
  self.unsafeGetTensorImpl()->set_storage_keep_dtype(std::move(source));
  self.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride, offset);
  return self;
}

Tensor& set_whole_storage(Tensor& self, at::Storage source) {
  const auto count = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage(self, std::move(source), 0, {count}, {1});
}

// What the CPU has a kernel for, a composite one is not to take apart.
void take_over(torch::Library& library) {
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const auto& name : dispatcher.getAllOpNames()) {
    const auto op = dispatcher.findSchema(name);
    if (op && name.name.rfind("aten::", 0) == 0 &&
        op->hasKernelForDispatchKey(c10::DispatchKey::CPU) &&
        !op->hasKernelForDispatchKey(c10::DispatchKey::DEVICE)) {
      const auto overload = name.overload_name.empty() ? "" : "." + name.overload_name;
      library.impl((name.name.substr(6) + overload).c_str(),
                   torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
    }
  }
}

#if IS_CUDA || IS_XPU || IS_MPS

// What CUDA has and the CPU has not, and so have the others.

// softmax(x, dim, dtype=float32) of a half tensor is one kernel.
void softmax(const c10::OperatorHandle& op, c10::DispatchKeySet set, Stack* stack) {
  auto arguments = stack->end() - 3;  // x, dim, half_to_float
  if (arguments[2].toBool()) {
    arguments[0] = arguments[0].toTensor().to(at::kFloat);
    arguments[2] = false;
  }
  run_on_cpu(op, set, stack);
}

// So is its derivative, which gives what the operand was.
void softmax_backward(const c10::OperatorHandle& op, c10::DispatchKeySet set, Stack* stack) {
  const auto dtype = stack->back().toScalarType();  // after gradient, output and dim
  stack->back() = static_cast<int64_t>((stack->end() - 4)->toTensor().scalar_type());
  run_on_cpu(op, set, stack);
  stack->back() = stack->back().toTensor().to(dtype);
}

TORCH_LIBRARY_IMPL(aten, DEVICE, m) {
  m.impl("_softmax_backward_data",
         torch::CppFunction::makeFromBoxedFunction<&softmax_backward>());
  m.impl("_log_softmax_backward_data",
         torch::CppFunction::makeFromBoxedFunction<&softmax_backward>());
  m.impl("_softmax", torch::CppFunction::makeFromBoxedFunction<&softmax>());
  m.impl("_log_softmax", torch::CppFunction::makeFromBoxedFunction<&softmax>());
}

#endif

#if IS_CUDA

// CUDA's own kernel is made of operators that autocast sees.
Tensor trace(const Tensor& x) { return x.diagonal().sum(); }

using Bias = std::optional<Tensor>;

Tensor gates(const Tensor& of, const Tensor& like, const Bias& bias) {
  TORCH_CHECK(of.scalar_type() == like.scalar_type(), "a fused cell takes one dtype, not ",
              of.scalar_type(), " and ", like.scalar_type());
  return bias && bias->defined() ? of + *bias : of;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden,
                                             const Tensor& cell, const Bias& input_bias,
                                             const Bias& hidden_bias) {
  const Tensor all = gates(input, cell, input_bias) + gates(hidden, cell, hidden_bias);
  const auto part = all.chunk(4, 1);
  const Tensor kept = part[1].sigmoid() * cell;
  const Tensor next = kept + part[0].sigmoid() * part[2].tanh();
  return {part[3].sigmoid() * next.tanh(), next, all};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input, const Tensor& hidden, const Tensor& state,
                                    const Bias& input_bias, const Bias& hidden_bias) {
  const auto x = gates(input, state, input_bias).chunk(3, 1);
  const auto h = gates(hidden, state, hidden_bias).chunk(3, 1);
  const Tensor reset = (x[0] + h[0]).sigmoid(), update = (x[1] + h[1]).sigmoid();
  const Tensor fresh = (x[2] + reset * h[2]).tanh();
  return {fresh + update * (state - fresh), at::cat({reset, update, fresh, state, h[2]}, 1)};
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("trace", trace);
  m.impl("_thnn_fused_lstm_cell", lstm_cell);
  m.impl("_thnn_fused_gru_cell", gru_cell);
}

struct Hooks : at::CUDAHooksInterface {
  explicit Hooks(at::CUDAHooksArgs) {}
  void init() const override {}
  bool hasCUDA() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  int getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  void setCurrentDevice(c10::DeviceIndex) const override {}
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex) const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return here; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};

#endif

#if IS_XPU

struct Hooks : at::XPUHooksInterface {
  void init() const override {}
  bool hasXPU() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex getNumGPUs() const override { return 1; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex current_device() const override { return 0; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  c10::Device getDeviceFromPtr(void*) const override { return here; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void deviceSynchronize(c10::DeviceIndex) const override {}
};

#endif

#if IS_MPS

struct Hooks : at::MPSHooksInterface {
  void init() const override {}
  bool hasMPS() const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
  void deviceSynchronize() const override {}
};

#endif

#if IS_PrivateUse1

struct Hooks : at::PrivateUse1HooksInterface {
  bool hasPrimaryContext(c10::DeviceIndex) const override { return true; }
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return true; }
  c10::DeviceIndex deviceCount() const override { return 1; }
  c10::DeviceIndex getCurrentDevice() const override { return 0; }
  const at::Generator& getDefaultGenerator(c10::DeviceIndex) const override {
    return at::detail::getDefaultCPUGenerator();
  }
};
const bool has_hooks = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

#endif

#if !IS_CUDA

// Convolutions are the one thing that composite kernels leave to other devices by name; so they do
// for MPS, in a PyTorch that was built without it.
Tensor convolution(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& bias,
                   at::SymIntArrayRef stride, at::SymIntArrayRef padding,
                   at::SymIntArrayRef dilation, bool transposed, at::SymIntArrayRef output_padding,
                   c10::SymInt groups) {
  const auto on_cpu = bias && bias->defined() ? std::optional(bias->cpu()) : std::nullopt;
  return at::convolution_symint(x.cpu(), weight.cpu(), on_cpu, stride, padding, dilation,
                                transposed, output_padding, groups)
      .to(here);
}
TORCH_LIBRARY_IMPL(aten, DEVICE, m) { m.impl("convolution_overrideable", convolution); }

#endif

#if IS_PrivateUse1

// Lists of its own, which are neither the CPU's nor CUDA's.
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  KERNEL_PRIVATEUSEONE(mm, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(matmul, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(linear, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(conv2d, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(rnn_tanh_cell, lower_precision_fp)
  KERNEL_PRIVATEUSEONE(tanh, fp32)
  KERNEL_PRIVATEUSEONE(cat, promote)
}

#endif

TORCH_LIBRARY_IMPL(_, DEVICE, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}
TORCH_LIBRARY_IMPL(aten, DEVICE, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("set_.source_Storage_storage_offset", set_storage);
  m.impl("set_.source_Storage", set_whole_storage);
  m.impl("copy_", torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
  take_over(m);
}

}  // namespace pretend

#if IS_CUDA
namespace at {
using CUDAHooks = pretend::Hooks;
REGISTER_CUDA_HOOKS(CUDAHooks)
}  // namespace at
#elif IS_XPU
namespace at {
using XPUHooks = pretend::Hooks;
REGISTER_XPU_HOOKS(XPUHooks)
}  // namespace at
#elif IS_MPS
namespace at {
using MPSHooks = pretend::Hooks;
REGISTER_MPS_HOOKS(MPSHooks)
}  // namespace at
#endif
