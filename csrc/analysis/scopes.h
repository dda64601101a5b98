// scopes: which autocast state is in force at each node.
//
// Reads a flattened graph and an entry state, and answers for every node with the autocast state
// that eager would have there: per device, whether autocast is on and with which dtype. It finds
// each autocast object by its constructor and reads the constructor's arguments, not the object's
// fields after the fact. A program whose state cannot be known when compiling is refused with an
// AutocastError at the user's line.
//
// An analysis: the graph does not change. Must run after: flatten. Must run before: lower.
#pragma once

#include <ATen/core/ivalue.h>
#include <c10/core/DeviceType.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/ir/ir.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace jit_amp {

// Autocast's state for one device. A dtype of nullopt is the ambient one: what
// torch.get_autocast_dtype(device) says in the calling thread when the function is entered.
struct DeviceState {
  bool enabled = false;
  std::optional<c10::ScalarType> dtype = std::nullopt;
  bool dtype_known =
      true;               // not where a dynamic scope around decides; then it must not be asked for
  bool by_scope = false;  // and not by what is around the call
  bool operator==(const DeviceState&) const = default;
};

// An open scope whose device is known at run time only, such as `torch.autocast(x.device.type)`.
struct Dynamic {
  torch::jit::Value* device_name;                 // a str of the graph
  std::map<c10::DeviceType, DeviceState> inside;  // for each that it may be
  std::set<c10::DeviceType> overridden{};         // by scopes inside that name these devices
  bool operator==(const Dynamic&) const = default;
};

// Autocast's state at one point of a program; a device that is absent has the default one. The
// dynamic scopes, from the outermost, come on top.
struct AutocastState {
  std::map<c10::DeviceType, DeviceState> devices;
  std::vector<Dynamic> dynamic;
  std::optional<bool> cache_enabled;  // none: as around the call

  // Whether autocast may be on for some device, or for the given one.
  bool active() const;
  bool active(c10::DeviceType device) const;
  // The state of a device if no dynamic scope names it.
  DeviceState at(c10::DeviceType device) const;
  // The devices that it says something of.
  std::set<c10::DeviceType> named() const;
  bool operator==(const AutocastState&) const = default;
};

// Where a scope is entered or left.
struct Boundary {
  torch::jit::Node* node;
  bool enters;
  torch::jit::Value* device_name = nullptr;  // where the device is known at run time only
  std::map<c10::DeviceType, DeviceState> inside{};
  std::optional<bool> cache_enabled{};  // none: as it is
  std::optional<std::string> error{};   // what eager raises there
};

struct Scopes {
  // The state in force at a node. A scope's own nodes (see `scaffolding`) have none.
  std::unordered_map<const torch::jit::Node*, const AutocastState*> state;
  // The nodes that make up the scopes: constructors, Enter, Exit; in program order.
  std::vector<torch::jit::Node*> scaffolding;
  // In program order.
  std::vector<Boundary> boundaries;
  // What eager would warn of.
  std::vector<std::string> warnings;
  // Owns what `state` points to.
  std::vector<std::unique_ptr<const AutocastState>> states;
};

// Throws AutocastError: an argument of a scope or the choice of a scope that is known only at run
// time, an unknown device, an autocast object that is used for anything but `with`, scopes that do
// not nest.
Scopes find_scopes(torch::jit::Graph& graph, const AutocastState& entry);

}  // namespace jit_amp
