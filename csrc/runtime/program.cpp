#include "runtime/program.h"

#include <ATen/autocast_mode.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/jit/ir/alias_analysis.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/jit/runtime/interpreter.h>
#include <torch/csrc/python_headers.h>

#include <unordered_map>
#include <unordered_set>

#include "analysis/hidden_calls.h"
#include "analysis/policy.h"
#include "core/ambient.h"
#include "core/dialect.h"
#include "core/error.h"
#include "core/graphs.h"
#include "core/ignored.h"
#include "core/verify.h"
#include "passes/lowering/enter_scopes.h"
#include "pipelines/script.h"
#include "runtime/attach.h"
#include "runtime/kernels.h"
#include "runtime/reference.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// Of one function; the oldest goes.
constexpr size_t kVariants = 16;

size_t kind_of(Ambient ambient) {
  return static_cast<size_t>(ambient.cpu) + 2 * static_cast<size_t>(ambient.cuda);
}

// Whether a tensor in the value requires grad, a module's tensors and its submodules' included.
bool requires_grad(const c10::IValue& value) {
  const auto any = [](const auto& values) {
    return std::any_of(values.begin(), values.end(),
                       [](const auto& each) { return requires_grad(each); });
  };
  if (value.isTensor()) {
    return value.toTensor().requires_grad();
  }
  if (value.isObject()) {
    return any(value.toObjectRef().slots());
  }
  if (value.isTuple()) {
    return any(value.toTupleRef().elements());
  }
  if (value.isTensorList() || value.isList()) {
    return any(value.toListRef());
  }
  if (value.isGenericDict()) {
    const auto dict = value.toGenericDict();
    return std::any_of(dict.begin(), dict.end(),
                       [](const auto& item) { return requires_grad(item.value()); });
  }
  return false;
}

// Whether the graph makes tensors that require grad, of ones that do not; or may, as it runs what
// is not in it.
bool makes_leaves(Graph& graph) {
  const auto nodes = all_nodes(graph);
  return std::any_of(nodes.begin(), nodes.end(), [](Node* node) {
    if (ops::is_scoped(node)) {
      return makes_leaves(*node->g(attr::Subgraph));
    }
    const at::Tensor* constant = tensor_in(node);
    const auto* schema = node->maybeSchema();
    const auto argument =
        schema ? schema->argumentIndexWithName("requires_grad") : std::optional<int>();
    return (constant && constant->requires_grad()) || is_call(node) || hidden_callee(node) ||
           node->kind() == ops::program ||
           (argument && constant_as<bool>(node->input(*argument)) != false);
  });
}

// Whether the graph writes to a tensor that comes from outside and that it casts. Eager goes on
// with the cast in its cache then (cached_cast in ATen/autocast_mode.cpp), if the tensor requires
// grad.
bool writes_to_cast(const std::shared_ptr<Graph>& graph) {
  if (!may_write(graph->block())) {
    return false;
  }
  const AliasDb aliases(graph);
  const auto nodes = all_nodes(*graph);
  return std::any_of(nodes.begin(), nodes.end(), [&](const Node* node) {
    return node->kind() == ops::cast && aliases.hasWriters(node->input(0)) &&
           aliases.mayContainAlias({node->input(0)}, graph->inputs());
  });
}

// All programs there are, by their source graphs.
struct Programs {
  Lock lock;
  std::unordered_map<const Graph*, Program*> programs;
};

Programs& programs() {
  static auto& all = *new Programs;  // outlives TorchScript's own statics
  return all;
}

// The units of functions that jit_amp has made.
struct Units {
  Lock lock;
  std::unordered_map<const Function*, std::weak_ptr<CompilationUnit>> owners;
};

Units& units() {
  static auto& all = *new Units;
  return all;
}

void collect_callees(Graph& graph, std::unordered_set<const Function*>& seen,
                     std::vector<std::shared_ptr<CompilationUnit>>& kept) {
  for (Node* node : all_nodes(graph)) {
    const auto type = node->kind() == prim::Constant
                          ? node->output()->type()->cast<c10::FunctionType>()
                          : nullptr;
    if (!type || !seen.insert(type->function()).second) {
      continue;
    }
    if (const auto owner = units().owners.find(type->function()); owner != units().owners.end()) {
      kept.push_back(owner->second.lock());
    }
    if (auto* callee = tryToGraphFunction(*type->function())) {
      collect_callees(*callee->graph(), seen, kept);
    }
  }
}

// An operator of PyTorch's interpreter.
void run_program(Stack& stack) {
  const auto inputs = static_cast<size_t>(pop(stack).toInt());
  const auto program = peek(stack, 0, inputs).toCustomClass<Program>();
  try {
    program->run(stack, inputs - 1);
  } catch (const AutocastError& error) {
    throw in_interpreter(error);
  }
  // The results are on top of the program.
  stack.erase(stack.end() - static_cast<std::ptrdiff_t>(program->results()) - 1);
}

// A graph with a program in it cannot be written: PyTorch pickles its constants, and comes here.
const auto program_class = torch::class_<Program>("jit_amp", "Program")
                               .def_pickle(
                                   [](const c10::intrusive_ptr<Program>&) -> std::string {
                                     throw diagnostic(Diagnostic::not_frozen, nullptr);
                                   },
                                   [](const std::string&) -> c10::intrusive_ptr<Program> {
                                     throw diagnostic(Diagnostic::not_frozen, nullptr);
                                   });
const RegisterOperators program_operators({Operator("jit_amp::program(...) -> ...", run_program,
                                                    c10::AliasAnalysisKind::CONSERVATIVE)});

}  // namespace

AutocastState entry_state(Ambient ambient) {
  AutocastState state;
  if (ambient.cpu) {
    state.devices[at::kCPU] = {true, std::nullopt};
  }
  if (ambient.cuda) {
    state.devices[at::kCUDA] = {true, std::nullopt};
  }
  return state;
}

namespace {

// Of a third device, autocast's lists are the dispatcher's alone to know.
bool names_third_device(Graph& graph) {
  const auto scopes = find_scopes(graph, AutocastState());
  return std::any_of(scopes.boundaries.begin(), scopes.boundaries.end(), [](const Boundary& at) {
    return std::any_of(at.inside.begin(), at.inside.end(), [](const auto& inside) {
      return inside.first != at::kCPU && inside.first != at::kCUDA;
    });
  });
}

}  // namespace

std::shared_ptr<Graph> lowered_graph(GraphFunction& function, const ObjectPtr& self,
                                     Ambient ambient, std::vector<Read>* reads) {
  const Turn turn;
  return refusing_unfit_graphs([&] {
    Context context;
    context.function = &function;
    context.self = self;
    context.entry = entry_state(ambient);
    run_pipeline(flattening(), context);
    for (Node* node : all_nodes(*context.graph)) {
      if (GraphFunction* callee = hidden_callee(node)) {  // runs under the dispatcher's autocast
        serve_ambient(*callee);
      }
    }
    const bool enters = can_enter_scopes(*context.graph) && names_third_device(*context.graph);
    run_pipeline(enters ? entering() : lowering(), context);
    if (!context.entry.active()) {
      for (const std::string& warning : context.scopes.warnings) {
        TORCH_WARN(warning);
      }
    }
    if (!enters) {
      run_pipeline(running(), context);
    }
    if (reads) {
      *reads = std::move(context.reads);
    }
    return context.graph;
  });
}

std::shared_ptr<Graph> recording_graph(GraphFunction& function, const ObjectPtr& self,
                                       std::vector<Read>* reads) {
  const Turn turn;
  return refusing_unfit_graphs([&]() -> std::shared_ptr<Graph> {
    Context context;
    context.function = &function;
    context.self = self;
    run_pipeline(flattening(), context);
    if (reads) {
      *reads = std::move(context.reads);
    }
    if (!can_enter_scopes(*context.graph)) {
      return nullptr;
    }
    run_pipeline(entering(), context);
    return context.graph;
  });
}

void own(const StrongFunctionPtr& function) {
  const std::lock_guard lock(units().lock);
  auto& owners = units().owners;
  for (auto it = owners.begin(); it != owners.end();) {
    it = it->second.expired() ? owners.erase(it) : std::next(it);
  }
  owners[function.function_] = function.cu_;
}

Program::Program(const GraphFunction& function)
    : source_(function.qualname(), function.graph(), nullptr) {
  {
    const std::lock_guard lock(programs().lock);
    programs().programs.emplace(source_.graph().get(), this);
  }
  const std::lock_guard lock(units().lock);
  if (!units().owners.empty()) {
    std::unordered_set<const Function*> seen;
    collect_callees(*source_.graph(), seen, callees_);
  }
}

Program::~Program() {
  const std::lock_guard lock(programs().lock);
  programs().programs.erase(source_.graph().get());
}

Program* Program::behind(const GraphFunction& function) {
  const std::lock_guard lock(programs().lock);
  const auto found = programs().programs.find(function.graph().get());
  return found == programs().programs.end() ? nullptr : found->second;
}

bool Program::Variant::may_hold() const {
  return version == ignored_version() && policies == policy_version();
}

bool Program::Variant::holds_on(const ObjectPtr& module, const IgnoredIn& ignored_now) const {
  return may_hold() && ignored == ignored_now &&
         std::all_of(reads.begin(), reads.end(),
                     [&](const Read& read) { return read.holds_on(module); });
}

Program::LoweredGraph Program::find(const ObjectPtr& self, size_t kind) {
  const IgnoredIn ignored = ignored_in(self);
  const std::lock_guard lock(lock_);
  for (const Variant& variant : variants_) {
    if (variant.holds_on(self, ignored)) {
      return variant.lowered[kind];
    }
  }
  return {};
}

Program::LoweredGraph Program::make(const ObjectPtr& self, size_t kind, bool with_code) {
  const Turn turn;
  const uint64_t version = ignored_version(), policies = policy_version();
  const IgnoredIn ignored = ignored_in(self);
  LoweredGraph made = find(self, kind);  // another thread's may be there by now
  const bool is_new = !made.is_made;
  std::vector<Read> reads;
  if (is_new) {
    made.graph = kind == kWithGradients
                     ? recording_graph(source_, self, &reads)
                     : lowered_graph(source_, self, {(kind & 1) != 0, (kind & 2) != 0}, &reads);
    made.is_made = true;
    made.makes_leaves = made.graph && makes_leaves(*made.graph);
    made.writes_to_cast = kind != kWithGradients && made.graph && writes_to_cast(made.graph);
    made.is_unchecked = is_verifying() && kind != kWithGradients && made.graph;
    made.waits = made.graph && contains(*made.graph, aten::wait);
    made.enters_scopes =
        kind == kWithGradients || (made.graph && contains(*made.graph, ops::enter_scope));
  }
  if (with_code && made.graph && !made.code) {
    made.code = refusing_unfit_graphs([&] { return Code(made.graph, source_.name()); });
    if (contains(*made.graph, prim::fork)) {
      // A task may outlive the call that started it, and runs in code that this code owns. PyTorch
      // never frees its functions; so this is not freed either.
      (void)new Code(*made.code);
    }
  }

  std::vector<Variant> gone;  // these are freed without the lock: Python operators are in them
  LoweredGraph kept = made;
  const std::lock_guard lock(lock_);
  const auto outdated = std::stable_partition(
      variants_.begin(), variants_.end(), [](const Variant& known) { return known.may_hold(); });
  gone.assign(std::make_move_iterator(outdated), std::make_move_iterator(variants_.end()));
  variants_.erase(outdated, variants_.end());
  auto variant = std::find_if(variants_.begin(), variants_.end(),
                              [&](const Variant& known) { return known.holds_on(self, ignored); });
  if (variant == variants_.end()) {
    if (!is_new) {  // something has changed since: for this call it is right, and for no other
      return made;
    }
    if (variants_.size() == kVariants) {
      gone.push_back(std::move(variants_.front()));
      variants_.erase(variants_.begin());
    }
    variants_.push_back({version, policies, ignored, std::move(reads), {}});
    variant = std::prev(variants_.end());
  }
  kept.is_unchecked &= !with_code;  // the caller is the one to do it
  std::swap(variant->lowered[kind], kept);
  return made;
}

ObjectPtr Program::self_of(const Stack& stack, size_t inputs) const {
  const auto formals = source_.graph()->inputs();
  const bool is_method = !formals.empty() && formals[0]->type()->is_module();
  return is_method ? peek(stack, 0, inputs).toObject() : nullptr;
}

void Program::prepare(const ObjectPtr& self) { (void)make(self, kind_of({false, false}), false); }

Program::LoweredGraph Program::of_kind(const ObjectPtr& self, size_t kind) {
  const LoweredGraph found = find(self, kind);
  return found.is_made && (found.code || !found.graph) ? found : make(self, kind, true);
}

void Program::run(Stack& stack, size_t inputs) {
  const Ambient ambient{at::autocast::is_autocast_enabled(at::kCPU),
                        at::autocast::is_autocast_enabled(at::kCUDA)};
  // Not in the thread of a task, whose autocast state is not its caller's: one without Python.
  const bool may_enter = PyGILState_GetThisThreadState();
  const bool with_gradients = at::GradMode::is_enabled() && may_enter;
  const auto arguments = last(stack, inputs);
  // Which casts are made below vmap is the dispatcher's to know.
  const bool is_mapped = may_enter && c10::impl::tls_is_dispatch_key_included(
                                          c10::DispatchKey::FuncTorchDynamicLayerFrontMode);
  bool records = is_mapped ||
                 (with_gradients && std::any_of(arguments.begin(), arguments.end(), requires_grad));
  auto self = self_of(stack, inputs);
  const uint64_t version = ignored_version();
  LoweredGraph lowered;
  if (!records) {
    lowered = of_kind(self, kind_of(ambient));
    records = (with_gradients && lowered.makes_leaves) ||
              (may_enter && lowered.writes_to_cast &&
               std::any_of(arguments.begin(), arguments.end(), requires_grad));
  }
  if (records) {
    const LoweredGraph recording = of_kind(self, kWithGradients);
    lowered = recording.graph ? recording : of_kind(self, kind_of(ambient));
  }
  self = nullptr;
  std::optional<Stack> expected;
  if (lowered.is_unchecked && may_enter) {
    expected = reference(lowered, arguments.vec());
    if (ignored_version() != version) {  // another thread has had something heed autocast, or not
      expected.reset();
    }
  }
  std::optional<LeaveScopesGuard> scopes;
  std::optional<NoAutocastGuard> off;
  if (lowered.enters_scopes) {
    scopes.emplace();
  } else if (ambient.cpu || ambient.cuda) {
    off.emplace();  // the lowered graph holds the ambient's casts
  }
  std::optional<at::AutoGradMode> gradients;
  if (lowered.waits) {  // PyTorch then goes on in another thread, and ends `no_grad` there
    gradients.emplace(at::GradMode::is_enabled());
  }
  run_here(*lowered.code, stack, inputs);
  gradients.reset();
  if (expected) {
    check_same(last(stack, results()).vec(), *expected, source_.name());
  }
}

std::optional<Stack> Program::reference(const LoweredGraph& lowered, const Stack& inputs) {
  if (lowered.enters_scopes || !is_repeatable(*lowered.graph)) {
    return std::nullopt;
  }
  const LoweredGraph recording = of_kind(self_of(inputs, inputs.size()), kWithGradients);
  if (!recording.graph) {
    return std::nullopt;
  }
  Stack stack = inputs;
  const LeaveScopesGuard scopes;
  try {
    run_here(*recording.code, stack, inputs.size());
  } catch (const std::runtime_error&) {
    // The call will raise it; or the dispatcher takes less than Python does: `norm` of complex
    // numbers on CUDA.
    return std::nullopt;
  }
  return stack;
}

size_t Program::results() const { return source_.graph()->outputs().size(); }

std::shared_ptr<Graph> Program::graph() {
  auto graph = std::make_shared<Graph>();
  const auto& source = *source_.graph();
  for (const Value* input : source.inputs()) {
    graph->addInput()->copyMetadata(const_cast<Value*>(input));
  }
  std::vector<Value*> inputs(graph->inputs().begin(), graph->inputs().end());
  inputs.insert(inputs.begin(), graph->insertConstant(
                                    c10::IValue(c10::intrusive_ptr<Program>::reclaim_copy(this))));
  Node* node = graph->insertNode(graph->create(ops::program, inputs, source.outputs().size()));
  for (size_t i = 0; i < node->outputs().size(); ++i) {
    node->output(i)->setType(source.outputs()[i]->type());
    graph->registerOutput(node->output(i));
  }
  return graph;
}

}  // namespace jit_amp
