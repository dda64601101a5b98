#include "analysis/scopes.h"

#include <ATen/autocast_mode.h>
#include <c10/util/StringUtil.h>
#include <torch/csrc/jit/ir/constants.h>

#include "core/devices.h"
#include "core/error.h"
#include "core/graphs.h"

namespace jit_amp {
namespace {

using namespace torch::jit;

// An autocast object as its constructor made it.
struct Instance {
  Value* device_name = nullptr;                   // where the device is known at run time only
  std::map<c10::DeviceType, DeviceState> inside;  // what entering it sets, per possible device
  std::optional<bool> cache_enabled;              // as given, or as around the constructor
};

// One `with` that is open: what it entered, and what leaving it restores.
struct Frame {
  Instance* instance;
  AutocastState before;
};

class Finder {
 public:
  Finder(Graph& graph, const AutocastState& entry) : graph_(graph), current_(entry) {}

  Scopes run() {
    visit(graph_.block());
    return std::move(found_);
  }

 private:
  void visit(Block* block) {
    std::vector<Frame> open;  // a scope begins and ends in one block
    for (Node* node : block->nodes()) {
      if (node->kind() == prim::CreateObject && is_autocast_class(node->output()->type())) {
        found_.scaffolding.push_back(node);
      } else if (is_scope(node, prim::Enter, "__enter__")) {
        enter(node, open);
      } else if (is_scope(node, prim::Exit, "__exit__")) {
        exit(node, open);
      } else if (node->kind() == prim::CallMethod && is_autocast_class(node->input(0)->type())) {
        construct(node);
      } else {
        check_no_instance_escapes(node);
        found_.state.emplace(node, intern());
        for (Block* inner : node->blocks()) {
          visit(inner);
        }
        if (node->hasAttribute(attr::Subgraph)) {
          visit(node->g(attr::Subgraph)->block());
        }
      }
    }
    check_no_instance_escapes(block->return_node());
    if (!open.empty()) {
      throw diagnostic(Diagnostic::not_left, last_enter_);
    }
  }

  // Entering and leaving, by `with` or by hand.
  static bool is_scope(const Node* node, c10::Symbol kind, const char* method) {
    const bool by_hand = node->kind() == prim::CallMethod && node->s(attr::name) == method;
    return (node->kind() == kind || by_hand) && is_autocast_class(node->input(0)->type());
  }

  // `x.__init__(...)` of an autocast class: the one place where a scope's arguments stand.
  void construct(Node* node) {
    if (node->s(attr::name) != "__init__" || node->input(0)->node()->kind() != prim::CreateObject ||
        node->hasUses()) {
      throw diagnostic(Diagnostic::not_with, node);
    }
    if (instances_.count(node->input(0)) ||
        node->owningBlock() != node->input(0)->node()->owningBlock()) {
      throw diagnostic(Diagnostic::constructed_twice, node);
    }
    found_.scaffolding.push_back(node);
    auto cls = node->input(0)->type()->expect<c10::ClassType>();
    const auto& formals = cls->getMethod("__init__").getSchema().arguments();
    std::map<std::string, c10::IValue> given;
    for (size_t i = 1; i < formals.size() && i < node->inputs().size(); ++i) {
      auto value = toIValue(node->input(i));
      if (!value && formals[i].name() == "device_type") {
        continue;
      }
      if (!value) {
        throw diagnostic(Diagnostic::argument_unknown, node,
                         {"autocast's `" + formals[i].name() + "`"});
      }
      if (!value->type()->isSubtypeOf(*formals[i].type())) {
        throw diagnostic(
            Diagnostic::argument_type, node,
            {formals[i].name(), value->type()->repr_str(), formals[i].type()->repr_str()});
      }
      given.emplace(formals[i].name(), *value);
    }
    Instance made;
    made.cache_enabled = given.count("cache_enabled") && !given["cache_enabled"].isNone()
                             ? std::optional(given["cache_enabled"].toBool())
                             : current_.cache_enabled;
    std::vector<c10::DeviceType> devices{c10::DeviceType::CPU, accelerator_here()};
    if (formals.size() > 1 && formals[1].name() == "device_type" && !given.count("device_type")) {
      made.device_name = node->input(1);
    } else {
      devices = {device_of(node, *cls, given)};
    }
    for (const c10::DeviceType device : devices) {
      made.inside[device] = state_inside(node, device, given);
    }
    instances_[node->input(0)] = made;
  }

  DeviceState state_inside(Node* node, c10::DeviceType device,
                           std::map<std::string, c10::IValue>& given) {
    DeviceState inside;
    inside.by_scope = true;
    inside.enabled = !given.count("enabled") || given["enabled"].toBool();
    if (given.count("dtype") && !given["dtype"].isNone()) {
      const int64_t dtype = given["dtype"].toInt();
      if (dtype < 0 || dtype >= static_cast<int64_t>(c10::ScalarType::Undefined)) {
        throw diagnostic(Diagnostic::dtype_number, node, {std::to_string(dtype)});
      }
      inside.dtype = static_cast<c10::ScalarType>(dtype);
    } else {
      inside.dtype = current_.at(device).dtype;
      inside.dtype_known =
          current_.at(device).dtype_known &&
          std::all_of(current_.dynamic.begin(), current_.dynamic.end(),
                      [&](const Dynamic& scope) { return scope.overridden.count(device) != 0; });
      if (inside.enabled && !inside.dtype_known) {
        throw diagnostic(Diagnostic::dtype_of_dynamic, node);
      }
    }
    // As torch.autocast does (torch/amp/autocast_mode.py).
    const auto taken = inside.enabled && inside.dtype ? autocast_takes(device, *inside.dtype)
                                                      : std::optional(true);
    if (!taken) {
      const std::string name = c10::DeviceTypeName(device, /*lower_case=*/true);
      throw diagnostic(Diagnostic::no_amp_module, node, {name, name});
    }
    if (!*taken) {
      found_.warnings.push_back(c10::str("In ", c10::DeviceTypeName(device),
                                         " autocast, but the target dtype ", *inside.dtype,
                                         " is not supported. Disabling autocast."));
      inside.enabled = false;
    }
    return inside;
  }

  c10::DeviceType device_of(Node* node, const c10::ClassType& cls,
                            std::map<std::string, c10::IValue>& given) {
    std::string name = "cuda";
    if (given.count("device_type")) {
      if (!given["device_type"].isString()) {
        throw diagnostic(Diagnostic::device_type_no_string, node);
      }
      name = given["device_type"].toStringRef();
    } else if (cls.name()->qualifiedName().find(".cpu.") != std::string::npos) {
      name = "cpu";
    }
    try {
      const c10::DeviceType type = c10::Device(name).type();
      if (c10::DeviceTypeName(type, /*lower_case=*/true) == name &&
          at::autocast::is_autocast_available(type)) {
        return type;
      }
    } catch (const c10::Error&) {  // not a device at all: told below
    }
    throw diagnostic(Diagnostic::no_autocast, node, {name});
  }

  void enter(Node* node, std::vector<Frame>& open) {
    Instance& instance = resolve(node, node->input(0));
    found_.scaffolding.push_back(node);
    last_enter_ = node;
    open.push_back({&instance, current_});
    found_.boundaries.push_back(
        {node, true, instance.device_name, instance.inside, instance.cache_enabled});
    current_.cache_enabled = instance.cache_enabled;
    if (instance.device_name) {
      current_.dynamic.push_back({instance.device_name, instance.inside});
    } else {
      const auto& [device, inside] = *instance.inside.begin();
      if (inside.enabled && inside.dtype) {
        found_.boundaries.back().error = autocast_raises(device, *inside.dtype);
      }
      current_.devices[device] = inside;
      for (Dynamic& scope : current_.dynamic) {
        scope.overridden.insert(device);
      }
    }
    here_ = nullptr;
    if (node->outputs().size() == 1 && is_object(node->output())) {
      aliases_[node->output()] = node->input(0);
    }
  }

  void exit(Node* node, std::vector<Frame>& open) {
    Instance& instance = resolve(node, node->input(0));
    if (open.empty() || open.back().instance != &instance) {
      throw diagnostic(Diagnostic::not_nested, node);
    }
    for (Value* output : node->outputs()) {
      if (output->hasUses()) {
        throw diagnostic(Diagnostic::exit_result, node);
      }
    }
    found_.scaffolding.push_back(node);
    found_.boundaries.push_back({node, false});
    current_ = open.back().before;
    here_ = nullptr;
    open.pop_back();
  }

  Instance& resolve(Node* user, Value* value) {
    for (auto it = aliases_.find(value); it != aliases_.end(); it = aliases_.find(value)) {
      value = it->second;
    }
    auto found = instances_.find(value);
    if (found != instances_.end()) {
      return found->second;
    }
    if (value->node()->kind() == prim::If || value->node()->kind() == prim::Loop) {
      throw diagnostic(Diagnostic::chosen_at_run_time, user);
    }
    throw diagnostic(Diagnostic::made_elsewhere, user);
  }

  // An object may only be constructed, entered and left. Anything else (returned, stored, its
  // fields read) would need the object to exist.
  void check_no_instance_escapes(Node* node) {
    for (Value* input : node->inputs()) {
      if (!is_object(input)) {
        continue;
      }
      const bool branch = node->kind() == prim::Return && node->owningBlock()->owningNode();
      if (branch) {
        throw diagnostic(Diagnostic::chosen_at_run_time, input->node());
      }
      const bool is_set = node->kind() == prim::SetAttr && input == node->input(0);
      throw diagnostic(is_set ? Diagnostic::taken_apart : Diagnostic::not_with,
                       is_set || node->kind() == prim::Return ? input->node() : node);
    }
  }

  bool is_object(Value* value) const {
    return value->type()->kind() == c10::TypeKind::ClassType && is_autocast_class(value->type());
  }

  const AutocastState* intern() {
    if (!here_) {
      for (const auto& state : found_.states) {
        if (*state == current_) {
          here_ = state.get();
          return here_;
        }
      }
      found_.states.push_back(std::make_unique<const AutocastState>(current_));
      here_ = found_.states.back().get();
    }
    return here_;
  }

  Graph& graph_;
  AutocastState current_;
  const AutocastState* here_ = nullptr;  // current_, interned
  Node* last_enter_ = nullptr;
  std::unordered_map<Value*, Instance> instances_;
  std::unordered_map<Value*, Value*> aliases_;  // `as` name -> object
  Scopes found_;
};

}  // namespace

bool AutocastState::active() const {
  const auto names = named();
  return std::any_of(names.begin(), names.end(),
                     [this](c10::DeviceType device) { return active(device); });
}

bool AutocastState::active(c10::DeviceType device) const {
  return at(device).enabled ||
         std::any_of(dynamic.begin(), dynamic.end(), [&](const Dynamic& scope) {
           const auto inside = scope.inside.find(device);
           return !scope.overridden.count(device) && inside != scope.inside.end() &&
                  inside->second.enabled;
         });
}

std::set<c10::DeviceType> AutocastState::named() const {
  std::set<c10::DeviceType> names;
  for (const auto& [device, state] : devices) {
    names.insert(device);
  }
  for (const Dynamic& scope : dynamic) {
    for (const auto& [device, state] : scope.inside) {
      names.insert(device);
    }
  }
  return names;
}

DeviceState AutocastState::at(c10::DeviceType device) const {
  auto found = devices.find(device);
  return found == devices.end() ? DeviceState{} : found->second;
}

Scopes find_scopes(torch::jit::Graph& graph, const AutocastState& entry) {
  return Finder(graph, entry).run();
}

}  // namespace jit_amp
